// Makes rows of pictures for a model that sees. libmtmd (tools/mtmd in llama.cpp) reads the file (--mmproj), divides
// and scales pictures, and computes their rows.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "media.h"
#include "model/token_model.h"
#include "model_weights.h"
#include "text/pictures.h"

struct mtmd_context;

namespace duo {

using prompt_part = std::variant<std::string, std::shared_ptr<const media>>;

// What llama_decode needs to know of a picture.
struct encoded_picture {
    const float *          rows   = nullptr; // [n_rows, n_embd], valid until the next picture is encoded
    int32_t                n_embd = 0;
    int32_t                n_rows = 0;
    std::vector<llama_pos> pos;                 // by part, then by row: [n_parts, n_rows]
    int32_t                n_parts     = 1;     // of a position: 4 with M-RoPE
    bool                   looks_ahead = false; // its rows see each other (Gemma 3)
};

// Any thread may read prompts; the model's thread encodes.
class projector {
  public:
    // Loads the file for this model. Throws duo::error.
    projector(const projector_options & opt, const model_weights & model);
    ~projector();
    projector(const projector &)             = delete;
    projector & operator=(const projector &) = delete;

    [[nodiscard]] bool    sees() const;
    [[nodiscard]] int32_t rate() const; // samples a second that it hears; 0: it is deaf

    // The tokens of the text parts, and the rows of pictures and sound between them. Throws duo::error.
    [[nodiscard]] seen_prompt read(std::span<const prompt_part> parts, bool add_special, bool parse_special) const;
    // Prompts are read for this draft as well. Before the first one.
    void read_for(std::shared_ptr<const projector> draft) { of_draft_ = std::move(draft); }

    // first: its first position. Throws duo::error.
    encoded_picture encode(const picture & p, llama_pos first);

  private:
    struct closer {
        void operator()(mtmd_context * c) const;
    };

    projector_options                     options_;
    std::shared_ptr<llama_model>          model_; // the context uses it
    int32_t                               n_embd_;
    uint64_t                              name_; // a hash of the file's header
    std::unique_ptr<mtmd_context, closer> context_;
    std::shared_ptr<const projector>      of_draft_; // null: the draft does not see
};

} // namespace duo
