#include "model.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "cpu/ggml_device.h"
#include "cpu/ggml_tiles.h"
#include "cpu/shortage.h"
#include "cpu/team.h"
#include "failed_check.h"
#include "hidden.h"
#include "log.h"

namespace duo {

void llama_token_model::limit_vocab(int32_t n) {
    samplers_.clear();
    for (int32_t i = 0; i < opt_.n_parallel; ++i) {
        samplers_.push_back(std::make_unique<sampler>(vocab(), std::min(n, n_vocab_), is_draft_));
    }
}

// Texts whose rows alternate would undo each other's setup. A draft's branches belong to no text, so its samplers are
// told apart by what they are set up for.
sampler & llama_token_model::sampler_of(int32_t i_row, const sampling_params & sampling) {
    if (!is_draft_) {
        return *samplers_[size_t(seq_of_[size_t(in_batch(i_row))][0] / (n_branch_ / opt_.n_parallel))];
    }
    auto found = std::find_if(samplers_.begin(), samplers_.end(),
                              [&sampling](const auto & s) { return s->stands_for(sampling); });
    found -= found == samplers_.end() ? 1 : 0;
    std::rotate(samplers_.begin(), found, found + 1);
    return *samplers_.front();
}

int64_t llama_token_model::n_setups() const {
    return std::accumulate(samplers_.begin(), samplers_.end(), int64_t(0),
                           [](int64_t n, const auto & s) { return n + s->n_setups(); });
}

// Rows without output leave the last layer before its feed-forward part. If one row remained, it would be computed as a
// single row, so a neighbour in the same pass gets an output too.
void llama_token_model::keep_two_outputs(size_t n) {
    if (!can_rollback_ && n > 1) { // where a recurrent model's passes end depends on its snapshots
        output_[n - 1] = output_[n - 2] = output_[n - 2] != 0 || output_[n - 1] != 0 ? 1 : 0;
        return;
    }
    const size_t n_pass = llama_n_ubatch(context_.get());
    for (size_t from = 0; from < n; from += n_pass) {
        const size_t to = std::min(n, from + n_pass);
        if (std::count(output_.begin() + ptrdiff_t(from), output_.begin() + ptrdiff_t(to), 1) == 1 && to - from > 1) {
            output_[output_[from] == 0 ? from : from + 1] = 1;
        }
    }
}

void llama_token_model::set_row(size_t i, const row & r, int32_t pos, bool output) {
    token_[i]  = r.token;
    pos_[i]    = pos;
    n_seq_[i]  = r.n_branches;
    seq_of_[i] = &seq_[size_t(r.branch)];
    output_[i] = output ? 1 : 0;
}

// If the pass has several texts with a recurrent state, each gets as many rows as the longest.
size_t llama_token_model::set_rows(std::span<const row> rows) {
    size_t width = 0;
    for (size_t i = 0, n = 0; i < rows.size(); ++i) {
        n     = i > 0 && rows[i].branch == rows[i - 1].branch ? n + 1 : 1;
        width = std::max(width, n);
    }
    const bool even = !states_.empty() && rows.front().branch != rows.back().branch;
    at_.clear();
    size_t n = 0;
    for (size_t i = 0; i < rows.size(); ++i) {
        at_.push_back(int32_t(n));
        set_row(n++, rows[i], rows[i].pos, rows[i].output);
        const bool last = i + 1 == rows.size() || rows[i + 1].branch != rows[i].branch;
        for (int32_t pos = rows[i].pos + 1; even && last && n % width != 0; ++pos) {
            set_row(n++, rows[i], pos, false);
        }
    }
    return n;
}

// An extra row is dropped again. That would take a kept state back to before the batch, so the batch is divided.
decode_status llama_token_model::decode(std::span<const row> rows, const std::atomic<bool> & stop) {
    const size_t n = rows.size();
    i_first_       = 0;
    if (is_block()) {
        return decode_block(rows, stop);
    }
    if (undo() == undo_kind::copy && n > 2 && ends_alone(n) && rows.front().branch == rows.back().branch &&
        std::none_of(rows.begin(), rows.end() - 2, [](const row & r) { return r.output; })) {
        decode_batch(rows.first(n - 2), stop);
        keep_features(n - 2);
        i_first_ = int32_t(n) - 2;
        return decode_batch(rows.last(2), stop);
    }
    return decode_batch(rows, stop);
}

bool llama_token_model::ends_alone(size_t n) const {
    return wants_company() && n % llama_n_ubatch(context_.get()) == 1;
}

void llama_token_model::check_rows(std::span<const row> rows) const {
    if (rows.empty() || rows.size() > size_t(n_batch_)) {
        throw error(error_kind::bad_value, "a batch of " + std::to_string(rows.size()) +
                                               " rows does not fit -b/--batch-size " + std::to_string(n_batch_));
    }
    for (const row & r : rows) {
        if (r.token < 0 || r.token >= n_vocab_) {
            throw error(error_kind::bad_value,
                        "token id " + std::to_string(r.token) + " is outside the vocabulary of " + opt_.path);
        }
        if (r.branch < 0 || r.n_branches < 1 || r.branch + r.n_branches > n_branch_) {
            throw error("a row belongs to branch " + std::to_string(r.branch) + " or higher ones, but the cache of " +
                        opt_.path + " only has " + std::to_string(n_branch_));
        }
    }
}

// Calls libllama for a pass, and returns what it returns. what: the beginning of the sentence that an error has. After
// memory ran out in the middle of a pass, libllama's context must not be used.
int32_t llama_token_model::guarded(int32_t n_tokens, const std::function<int32_t()> & pass,
                                   const std::function<std::string()> & what) {
    if (context_.get_deleter().is_broken) {
        throw error(error_kind::does_not_fit,
                    "memory ran out while " + opt_.path + " was used; free memory, and load it again");
    }
    if (extra_buffers_) {
        const int32_t n = n_tokens > 1 ? opt_.n_threads_batch : opt_.n_threads;
        cpu::restore_ggml_tiles(n_threads_ > 0 ? n_threads_ : n);
    }
    const throwing_shortage shortage;
    log_clear_errors();
    try {
        cpu::require_spare();
        return pass();
    } catch (const std::exception & e) {
        stop_             = nullptr;
        const failure why = failure_of(e);
        context_.get_deleter().is_broken |= shortage.threw();
        throw error(why.kind, what() + ": " + why.sentence);
    }
}

// stop_ ends it early.
bool llama_token_model::evaluate(const llama_batch & batch) {
    const auto what = [&] {
        return "evaluating " + std::to_string(batch.n_tokens) + " tokens with " + opt_.path + " failed";
    };
    const cpu::offload_products offload(helpers_);
    const cpu::team_size        unpacking(std::max(1, opt_.n_threads_batch));

    const int32_t rc = guarded(
        batch.n_tokens,
        [&] {
            const int32_t result = llama_decode(context_.get(), batch);
            llama_synchronize(context_.get());
            return result;
        },
        what);
    stop_ = nullptr;
    if (rc != 0 && rc != 2) {
        throw error(rc == 1 ? error_kind::context_full : error_kind::internal,
                    what() +
                        (rc == 1 ? ": the context of " + std::to_string(n_ctx_) + " tokens is full" : log_reason()));
    }
    return rc == 0;
}

decode_status llama_token_model::decode_batch(std::span<const row> rows, const std::atomic<bool> & stop) {
    check_rows(rows);
    size_t n = set_rows(rows);
    // The extra row is removed below. A draft's recurrent state would not survive that.
    const bool padded = ends_alone(n) && (can_rollback_ || (n == 1 && n_batch_ > 1 && !is_draft_));
    if (padded) {
        set_row(n++, rows.back(), rows.back().pos + 1, false);
    }
    if (wants_company()) {
        keep_two_outputs(n);
    }
    if (head_) {
        set_states(rows);
    }
    const llama_batch batch{int32_t(n),    token_.data(), head_ ? state_of_.data() : nullptr,
                            pos_.data(),   n_seq_.data(), seq_of_.data(),
                            output_.data()};

    n_rows_ = 0; // until the pass is done
    cells_.begin();
    for (size_t i = 0; own_attention_ && i < n; ++i) {
        cells_.add({.pos = pos_[i], .text = seq_of_[i][0] / (n_branch_ / opt_.n_parallel)});
    }
    for (size_t i = 0; shortlist_ && i < rows.size(); ++i) {
        shortlist_->read(rows[i].token);
    }
    const cpu::choose_rows    proposed(shortlist_ ? shortlist_->rows() : nullptr);
    const cpu::take_attention attention(own_attention_, &cells_);
    stop_ = can_rollback_ ? &stop : nullptr; // a half-evaluated recurrent state could not be restored
    std::vector<int32_t> n_rows(states_.size());
    std::vector<int32_t> n_outputs(states_.size());
    for (size_t i = 0; !states_.empty() && i < rows.size(); ++i) {
        ++n_rows[size_t(rows[i].branch)];
        n_outputs[size_t(rows[i].branch)] += rows[i].output ? 1 : 0;
    }
    for (size_t i = 0; i < states_.size(); ++i) {
        states_[i].before_pass(n_rows[i] > 0 && (padded || n_outputs[i] > 1));
    }
    if (!evaluate(batch)) {
        undo(rows); // the cache may contain earlier parts of the batch
        return decode_status::stopped;
    }
    n_rows_          = int32_t(rows.size());
    const auto texts = int32_t(n_rows.size()) - int32_t(std::count(n_rows.begin(), n_rows.end(), 0));
    for (size_t i = 0; i < states_.size(); ++i) {
        if (n_rows[i] > 0) { // all texts of a pass have the same number
            const int32_t width = int32_t(n) / texts;
            states_[i].after_pass(width, texts > 1 ? width - n_rows[i] : 0);
        }
    }
    if (padded && undo() == undo_kind::copy) {
        states_[size_t(rows.back().branch)].take_back(rows.back().pos + 1);
    } else if (padded && !rollback(rows.back().branch, rows.back().pos + 1)) {
        throw error(error_kind::bad_value,
                    "the cache of " + opt_.path +
                        " cannot be rolled back; run without --strict and with --cpu-kernels stock");
    }
    return decode_status::ok;
}

void llama_token_model::use_threads(int32_t n) {
    if (n != n_threads_) {
        llama_set_n_threads(context_.get(), n > 0 ? n : opt_.n_threads, n > 0 ? n : opt_.n_threads_batch);
        n_threads_ = n;
    }
}

float * llama_token_model::logits_of(int32_t i_row, int32_t level) const {
    const bool known = i_row >= i_first_ && size_t(i_row - i_first_) < at_.size() && in_batch(i_row) >= 0;
    float *    row   = known ? llama_get_logits_ith(context_.get(), in_batch(i_row) + level) : nullptr;
    if (row == nullptr) {
        throw error("row " + std::to_string(i_row) + " of the last pass over " + opt_.path + " has no logits");
    }
    return row;
}

std::span<const float> llama_token_model::logits(int32_t i_row, int32_t level) const {
    return {logits_of(i_row, level), size_t(n_vocab_)};
}

int32_t llama_token_model::candidates(int32_t i_row, const sampling_params & sampling, std::span<const token_id> text,
                                      std::span<candidate> out) {
    float * const logits = logits_of(i_row, level_of(i_row, text));
    const int32_t n      = sampler_of(i_row, sampling).candidates(logits, sampling, text, out);
    check_numbers(logits, n == 0 ? no_token : out[0].token);
    return n;
}

void llama_token_model::chances(int32_t i_row, const sampling_params & sampling, std::span<const token_id> text,
                                std::vector<candidate> & out) {
    float * const logits = logits_of(i_row, level_of(i_row, text));
    sampler_of(i_row, sampling).chances(logits, sampling, text, out);
    check_numbers(logits, out.empty() ? no_token : out.front().token);
}

// A row with NaN leaves no candidate, or one that is not a number. best: the first candidate.
void llama_token_model::check_numbers(const float * logits, token_id best) const {
    if (best != no_token && std::isfinite(logits[best])) {
        return;
    }
    if (std::any_of(logits, logits + n_vocab_, [](float x) { return std::isnan(x); })) {
        const bool changed = !opt_.loras.empty() || !opt_.control_vectors.empty();
        throw nan_error(opt_.path + " computes NaN instead of numbers; " +
                        (changed ? "try it without its adapters and control vectors"
                                 : "its weights are corrupt, download it again"));
    }
}

float llama_token_model::logprobs(int32_t i_row, token_id token, std::span<candidate> out) {
    return samplers_.front()->logprobs(logits(i_row).data(), token, out);
}

} // namespace duo
