// Owns the models and the pipeline between them; what the bindings expose.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <string>
#include <vector>

#include "default_scales.h"
#include "engine/pipeline.h"
#include "home_process.h"
#include "llama/model.h"
#include "llama/projector.h"
#include "llama/translated_model.h"
#include "model/errand.h"
#include "remote/draft_link.h"
#include "remote/target_link.h"
#include "synthetic/synthetic_model.h"

namespace duo {

// Puts another model around one; the inner one outlives it.
using model_wrapper = std::function<std::unique_ptr<token_model>(token_model &)>;

struct engine_options {
    model_options     target;
    model_options     draft;                // path empty: no draft
    projector_options projector{};          // of the target; path empty: it sees nothing
    projector_options draft_projector{};    // of the draft
    bool              remote_draft = false; // the draft is elsewhere: see draft_link()
    int32_t           n_ctx_remote = 0; // > 0: the target is elsewhere, with a context of this size: see target_link()
    pair_prior        prior{};          // where the two models are placed, and the expected cost of passes
    int32_t           n_parallel = 1;   // texts at once
    std::string       lookup_static{};  // files of lookup_cache; empty: none
    std::string       lookup_dynamic{};
    int64_t           n_kept_bytes = 0; // RAM for texts that leave the target's cache; 0: none; -1: no limit
    bool              tracing      = false;
    model_wrapper     wrap{}; // empty: the models are used as they are
};

// Texts are begun, read and cancelled from any thread, each text by one thread at a time. Only one thread closes it.
class engine {
  public:
    // Loads both models. Throws duo::error.
    explicit engine(const engine_options & opt);
    // Makes two models without weights instead: target() and draft() stay null. Throws duo::error.
    explicit engine(const synthetic_options & opt);
    ~engine();

    // Starts a text, or puts it into the queue. Throws duo::error.
    std::shared_ptr<open_text> begin(std::unique_ptr<request> req);
    // Of what begins later. Throws duo::error in a forked process.
    [[nodiscard]] default_scales & scales();

    // Starts an errand; `prompt` is for the kinds that need one. place: in the target's cache; -1: see errand_desk.
    // scales: of the LoRA adapters; empty: those of scales(). Like a text, it ends with a chunk whose `finish` is set.
    // Throws duo::error.
    std::shared_ptr<open_text> begin(std::shared_ptr<errand> job, std::vector<token_id> prompt, int32_t place,
                                     lora_scales scales);

    // The text's next chunk. False: none came in time, or the engine is closed.
    bool next(open_text & text, text_chunk & out, int64_t timeout_us);
    // Waits for a chunk of any text. Returns a count of what has come, at once if that is not `seen`.
    uint64_t wait_news(uint64_t seen, int64_t timeout_us);
    // Returns when the text has ended.
    void cancel(open_text & text) noexcept;
    void cancel_all() noexcept;
    void close() noexcept;
    void take_trace(std::vector<trace_event> & target, std::vector<trace_event> & draft);

    // Calls use(planner) with the measurements of the pair, which nobody else uses meanwhile. Throws duo::error if a
    // text is being written, or if closed.
    void with_plans(const std::function<void(planner &)> & use) const;

    // Represent a model in another process, one for each text at once; they may outlive the engine. Empty: it is here.
    [[nodiscard]] const std::vector<std::shared_ptr<draft_link>> &  links_to_draft() const { return draft_links_; }
    [[nodiscard]] const std::vector<std::shared_ptr<target_link>> & links_to_target() const { return target_links_; }

    [[nodiscard]] bool running() const;
    // What it holds at this moment. Throws duo::error if closed.
    [[nodiscard]] engine_usage usage() const;
    // The dynamic n-gram cache, to this file. Throws duo::error, also while this is not closed.
    void save_lookup(const std::string & path) const;
    // The rings and bells. Throws duo::error if closed.
    [[nodiscard]] std::shared_ptr<wires> ends() const;

    // Null if the engine is closed, or the model is elsewhere or absent.
    [[nodiscard]] std::shared_ptr<const llama_token_model> target() const { return target_view_.lock(); }
    [[nodiscard]] std::shared_ptr<const llama_token_model> draft() const { return draft_view_.lock(); }
    // Of a draft with another vocabulary: see translation::shared().
    [[nodiscard]] std::optional<double> shared_vocabulary() const { return shared_vocabulary_; }

  private:
    // Freed from the last to the first: the pipeline ends before its models.
    struct loaded_models {
        std::shared_ptr<llama_token_model> target;
        std::shared_ptr<llama_token_model> draft;
        std::unique_ptr<translation>       words; // of a draft with another vocabulary
        std::unique_ptr<translated_model>  translated_draft;
        std::unique_ptr<synthetic_model>   synthetic_target;
        std::unique_ptr<synthetic_model>   synthetic_draft;
        std::unique_ptr<token_model>       wrapped_target;
        std::unique_ptr<token_model>       wrapped_draft;
        std::unique_ptr<pipeline>          line; // of these models; null: closed
    };

    // What uses the pipeline holds this lock, so that close() does not free it meanwhile. Nobody waits for it with the
    // GIL, and close() frees nothing under it. Throws duo::error if closed.
    [[nodiscard]] std::shared_lock<std::shared_mutex> enter() const;
    std::shared_ptr<const model_weights>              join_vocabularies(std::shared_ptr<const model_weights> draft);
    void start(token_model * target, token_model * draft, const pipeline::options & opt);

    const home_process home_;

    // Only the constructor sets it: one thread may ask for token ids while another closes.
    std::weak_ptr<const llama_token_model> target_view_;
    std::weak_ptr<const llama_token_model> draft_view_;

    loaded_models                             loaded_;
    std::optional<double>                     shared_vocabulary_;
    std::shared_ptr<lookup_cache>             lookup_; // null: there are no files
    default_scales                            scales_;
    mutable std::shared_mutex                 gate_;        // of what is loaded
    std::vector<std::shared_ptr<draft_link>>  draft_links_; // by the text's slot
    std::vector<std::shared_ptr<target_link>> target_links_;
};

} // namespace duo
