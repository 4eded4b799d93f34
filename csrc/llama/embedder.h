// A model that turns texts into vectors: embeddings, or scores of pairs of texts (reranking).
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include <llama.h>

#include "base/messages.h"
#include "model_context.h"
#include "model_weights.h"
#include "vocabulary.h"

namespace duo {

// Any thread may use it; texts of one call are computed at a time.
class embedder {
  public:
    // pooling: none, mean, cls, last, rank; empty: the model's own. n_batch of the options: tokens of the longest text,
    // unless the context is shorter. Throws duo::error.
    embedder(const model_options & opt, const std::string & pooling);

    // Where the passes over these texts end, as numbers of texts. Throws duo::error: one cannot be read.
    [[nodiscard]] std::vector<size_t> passes(std::span<const std::vector<token_id>> texts) const;

    // A vector for each text, or, with pooling none, for each token. Each has n_out() numbers. goes_on: asked before
    // each pass. Throws duo::error; cancelled: after stop(), or goes_on said no.
    std::vector<std::vector<float>> embed(std::span<const std::vector<token_id>> texts,
                                          const std::function<bool()> &          goes_on);

    // Ends what is computed, for good. From any thread.
    void stop() noexcept { stopped_ = true; }

    [[nodiscard]] int32_t     n_out() const { return n_out_; } // of a vector; a reranker's: its classes
    [[nodiscard]] int32_t     n_most() const { return int32_t(llama_n_ubatch(context_.get())); } // tokens of a text
    [[nodiscard]] std::string pooling() const;
    // The model's prompt for a pair of texts, with {query} and {document}; empty: the parts are put together.
    [[nodiscard]] std::string rerank_template() const;
    // Without a template: the tokens before, between and behind the two texts.
    [[nodiscard]] std::vector<std::vector<token_id>> around_pair() const;

  private:
    void create(const std::string & pooling);
    void check(std::span<const std::vector<token_id>> texts) const;
    void evaluate(std::span<const std::vector<token_id>> texts, std::vector<std::vector<float>> & out);

    std::shared_ptr<const model_weights> weights_;
    context_ptr                          context_;
    int32_t                              n_out_ = 0;
    std::mutex                           mutex_;
    std::atomic<bool>                    stopped_{false};
};

} // namespace duo
