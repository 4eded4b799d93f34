#include "model_decoder.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "cpu/ggml_compute.h"
#include "cpu/ggml_device.h"
#include "picture_batch.h"

namespace duo {

model_decoder::model_decoder(const model_weights & w, llama_context * target, bool own_attention, bool snapshots)
    : weights_(w), context_(w, target, own_attention, snapshots), cache_(w, context_),
      rows_(cache_, context_.shape().n_branch), batch_(w, context_.shape()), hidden_(w, context_, batch_),
      n_proposed_(w.n_vocab()) {
}

// llama.cpp's scheduler decides whether duo's device computes all attention, and architectures differ. The probe's pass
// shows it. If stock kernels compute some, the context is made again, without duo's attention and for narrow passes.
std::unique_ptr<model_decoder> model_decoder::make(const model_weights & w, llama_context * target) {
    // libllama divides the batches of a draft with a state, and their order is lost.
    bool       own_attention = w.kernels.attention && !(w.keeps_state() && w.is_draft);
    bool       snapshots     = true;
    auto       made          = std::make_unique<model_decoder>(w, target, own_attention, snapshots);
    const auto again         = [&] {
        made.reset(); // frees the memory for the next one
        made = std::make_unique<model_decoder>(w, target, own_attention, snapshots);
    };
    if (made->context_.shape().n_snapshots > 0 && llama_n_rs_seq(made->context_.get()) == 0) {
        snapshots = false; // the architecture has none
        again();
    }
    if (!made->probe()) {
        own_attention = false;
        again();
        made->probe();
    }
    made->context_.use_scales({});
    made->choose_shortlist();
    return made;
}

// Decodes two tokens and tries to remove one. A pass over a large model takes a second, and its logits are of no
// use: if duo's kernels have all products, none is computed. Others' would get what is none.
bool model_decoder::probe() {
    const cpu::skip_products skip(weights_.kernels.all_duo() && !weights_.devices.hold_weights);
    const int64_t            n = cpu::take_attention::n_done();
    const std::atomic<bool>  go{false};
    const token_id           t = std::min(1, weights_.n_vocab() - 1);
    const std::array         rows{row{.token = t, .pos = 0}, row{.token = t, .pos = 1, .output = true}};
    cache_.end_trial(context_.shape().n_batch >= 2 && decode(rows, go) == decode_status::ok);
    return !context_.own_attention() || context_.all_own(cpu::take_attention::n_done() - n);
}

// A soft cap would make numbers of the -inf of other tokens.
void model_decoder::choose_shortlist() {
    const model_options & opt   = weights_.options;
    const std::string     cap   = weights_.meta(weights_.architecture() + ".final_logit_softcapping");
    const bool            lists = opt.draft_vocab > 0 && opt.draft_vocab < weights_.n_vocab() &&
                       (cap.empty() || std::strtof(cap.c_str(), nullptr) == 0.0f);
    if (weights_.is_draft && !weights_.head && lists && !weights_.kernels.output.empty()) {
        shortlist_.emplace(weights_.vocab(), opt.draft_vocab, weights_.kernels.output);
        n_proposed_ = shortlist_->n_tokens();
    }
}

bool model_decoder::wants_padding() const {
    return weights_.kernels.same_bits && !weights_.head && (weights_.kernels.stock || !context_.own_attention());
}

bool model_decoder::ends_alone(size_t n) const {
    return wants_padding() && n % size_t(context_.n_pass()) == 1;
}

// An extra row is dropped again. That would take a kept state back to before the batch, so the batch is divided.
decode_status model_decoder::decode(std::span<const row> rows, const std::atomic<bool> & stop) {
    const size_t n = rows.size();
    batch_.begin(0);
    if (n > 0 && rows.front().picture != nullptr) {
        return decode_picture(rows, stop);
    }
    rows = rows_.placed(rows);
    if (weights_.is_block()) {
        return decode_blocks(rows, stop);
    }
    if (cache_.undo() == undo_kind::copy && n > 2 && ends_alone(n) && rows.front().branch == rows.back().branch &&
        std::none_of(rows.begin(), rows.end() - 2, [](const row & r) { return r.output; })) {
        decode_batch(rows.first(n - 2), stop);
        hidden_.keep(n - 2);
        batch_.begin(int32_t(n) - 2);
        return decode_batch(rows.last(2), stop);
    }
    return decode_batch(rows, stop);
}

bool model_decoder::evaluate(const llama_batch & batch, const std::atomic<bool> & stop) {
    // A half-evaluated recurrent state could not be restored.
    return context_.evaluate(batch, cache_.can_rollback() ? &stop : nullptr);
}

// If the pass has several texts with a recurrent state, each gets as many rows as the longest.
decode_status model_decoder::decode_batch(std::span<const row> rows, const std::atomic<bool> & stop) {
    batch_.check(rows);
    batch_.set(rows, cache_.keeps_states() && rows.front().branch != rows.back().branch);
    // The extra row is removed below. A draft's recurrent state would not survive that.
    const size_t n         = batch_.size();
    const bool   removable = cache_.can_rollback() || (n == 1 && context_.shape().n_batch > 1 && !weights_.is_draft);
    // Before a picture a pass may have one row, which a copied state must keep.
    const bool needed = cache_.undo() == undo_kind::copy && !rows.back().output;
    const bool padded = ends_alone(n) && removable && !needed;
    if (padded) {
        batch_.add_padding(rows.back());
    }
    if (wants_padding()) { // where a recurrent model's passes end depends on its snapshots
        batch_.keep_two_outputs(cache_.can_rollback() ? size_t(context_.n_pass()) : 0);
    }
    if (weights_.head) {
        batch_.set_states(rows);
    }
    for (size_t i = 0; shortlist_ && i < rows.size(); ++i) {
        shortlist_->read(rows[i].token);
    }
    const cpu::choose_rows proposed(shortlist_ ? shortlist_->rows() : nullptr);
    cache_.before_pass(rows, padded);
    if (!evaluate(batch_.get(true, weights_.head.has_value()), stop)) {
        cache_.take_back(rows); // the cache may contain earlier parts of the batch
        return decode_status::stopped;
    }
    batch_.done(rows.size());
    cache_.after_pass(rows, batch_.size());
    if (padded) {
        cache_.take_back_padding(rows.back());
    }
    return decode_status::ok;
}

// A picture's rows come as embeddings, in passes of their own, and none of them has an output. What is kept of a state
// from before is not among the last rows.
decode_status model_decoder::decode_picture(std::span<const row> rows, const std::atomic<bool> & stop) {
    const row & first = rows.front();
    if (eyes_ == nullptr) {
        throw error(error_kind::bad_value, weights_.options.path + " sees no pictures without --mmproj");
    }
    const encoded_picture seen = eyes_->encode(*first.picture, rows_.placed(rows.first(1)).front().pos);
    if (stop.load(std::memory_order_relaxed)) {
        return decode_status::stopped;
    }
    picture_batch batch(seen, first.branch);
    const int32_t n_pass = seen.looks_ahead ? context_.n_pass() : context_.shape().n_batch;
    if (seen.looks_ahead && seen.n_rows > std::min(n_pass, context_.shape().n_batch)) {
        throw error(error_kind::bad_value, "a picture of " + std::to_string(seen.n_rows) + " rows does not fit " +
                                               weights_.options.path + "'s passes of " + std::to_string(n_pass) +
                                               "; raise -ub/--ubatch-size and -b/--batch-size");
    }
    cache_.before_pass(rows, false);
    const causal_pause pause(context_.get(), seen.looks_ahead);
    for (int32_t i = 0; i < seen.n_rows; i += n_pass) {
        batch.choose(i, std::min(n_pass, seen.n_rows - i));
        if (!context_.evaluate(batch.get(), cache_.can_rollback() ? &stop : nullptr, batch.within())) {
            cache_.rollback(first.branch, batch.first_pos());
            return decode_status::stopped;
        }
    }
    cache_.after_pass(rows.first(1), 1);
    rows_.add(first.branch, first.pos, seen.n_rows, first.picture->n_pos());
    return decode_status::ok;
}

// A DFlash head (arXiv 2602.06036; llama.cpp: src/models/dflash.cpp). Hidden states of the target become cells of its
// cache without a pass through its layers. Then one pass over a block [token, mask, mask, ...], whose rows see each
// other, gives logits for all positions of the block: a mask's row for the position of the mask, or, with most DSpark
// heads, a row for the position after it.
//
// As in other heads, the cell at position p is made of the state of position p - 1. So the block after the token at
// position p begins at p + 1. RoPE only sees differences, so all numbers are the same as if nothing were shifted.
decode_status model_decoder::decode_blocks(std::span<const row> rows, const std::atomic<bool> & stop) {
    batch_.check(rows);
    batch_.set_without_tokens(rows);
    bool ok = evaluate(batch_.get(false, true), stop);
    if (ok) {
        batch_.set_blocks(rows);
        ok = batch_.size() == 0 || evaluate(batch_.get(true, false), stop);
    }
    if (!ok) {
        cache_.take_back(rows);
        return decode_status::stopped;
    }
    for (const row & r : rows) {
        if (r.output && !llama_memory_seq_rm(context_.memory(), r.branch, r.pos + 1, -1)) {
            throw error("the cache of " + weights_.options.path + " did not take back a block");
        }
    }
    batch_.done(rows.size());
    return decode_status::ok;
}

} // namespace duo
