// Passes of one model over rows: fills the batch, evaluates it, and keeps the cache right.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <span>

#include "hidden_states.h"
#include "model/token_model.h"
#include "model_cache.h"
#include "model_context.h"
#include "projector.h"
#include "row_batch.h"
#include "shortlist.h"
#include "text_rows.h"

namespace duo {

// Makes a context with what it needs for passes. One thread at a time uses it. The weights must outlive it.
class model_decoder {
  public:
    // target: the context of the model that a draft head reads. Throws duo::error.
    static std::unique_ptr<model_decoder> make(const model_weights & w, llama_context * target);

    model_decoder(const model_weights & w, llama_context * target, bool own_attention, bool snapshots);

    // Duo's kernels add in one order at any width. Stock kernels add a single row's products in a different order, but
    // use one order for all widths from 2 to 16; stock attention does so up to 63. If bits must be the same, the stock
    // parts limit the width of passes.
    decode_status decode(std::span<const row> rows, const std::atomic<bool> & stop);

    [[nodiscard]] model_context &       context() { return context_; }
    [[nodiscard]] const model_context & context() const { return context_; }
    [[nodiscard]] model_cache &         cache() { return cache_; }
    [[nodiscard]] text_rows &           rows() { return rows_; }
    [[nodiscard]] hidden_states &       hidden() { return hidden_; }
    [[nodiscard]] const row_batch &     batch() const { return batch_; }

    // The model sees from now on.
    void use(std::shared_ptr<projector> eyes) { eyes_ = std::move(eyes); }

    // Number of tokens for which a draft computes logits, before its first text.
    [[nodiscard]] int32_t n_proposed() const { return n_proposed_; }

  private:
    // False: stock kernels compute some of the attention that the context left to duo's.
    bool          probe();
    void          choose_shortlist();
    decode_status decode_batch(std::span<const row> rows, const std::atomic<bool> & stop);
    decode_status decode_blocks(std::span<const row> rows, const std::atomic<bool> & stop);
    decode_status decode_picture(std::span<const row> rows, const std::atomic<bool> & stop);
    bool          evaluate(const llama_batch & batch, const std::atomic<bool> & stop);
    // Bits must be the same, and some stock kernel gives a single row other bits.
    [[nodiscard]] bool wants_padding() const;
    // The last pass of a batch of n rows would be one row wide, where bits must be the same at any width.
    [[nodiscard]] bool ends_alone(size_t n) const;

    const model_weights &    weights_;
    model_context            context_;
    model_cache              cache_;
    text_rows                rows_; // of the cache
    row_batch                batch_;
    hidden_states            hidden_;
    std::optional<shortlist> shortlist_; // a draft's
    int32_t                  n_proposed_;

    std::shared_ptr<projector> eyes_; // null: it sees nothing
};

} // namespace duo
