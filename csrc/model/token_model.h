// All that the workers know about a model. llama/model.h implements it with libllama; tests use scripted models.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/messages.h"
#include "head_states.h"
#include "model_facts.h"
#include "text/lora_scales.h"
#include "text/pictures.h"
#include "text/sampling.h"

namespace duo {

// One row of a batch: a token at one position of one or more consecutive branches (llama.cpp sequences).
struct row {
    token_id token      = no_token;
    int32_t  pos        = 0;
    int32_t  branch     = 0;     // the first one
    int32_t  n_branches = 1;     // all of them hold the same tokens before `pos`
    bool     output     = false; // candidates() will be asked for this row
    int32_t  n_levels   = 1;     // and for so many positions in all; at most model_facts::n_levels

    const float * state = nullptr; // a draft head's: the state before the token, [n_state]

    // Not null: the row is one of this picture's, and has no token. A batch has all rows of one picture, or none of
    // any.
    const duo::picture * picture = nullptr;
};

struct candidate {
    token_id token = no_token;
    float    logp  = 0.0f; // draft: log of the chance that the target chooses it (sampler.h); nats
};

enum class decode_status { ok, stopped };

// For a pass over several texts, because one text's end must not stop the others.
inline const std::atomic<bool> never_stop{false};

// One thread at a time: the worker that owns it. is_end() and piece() may be called from any thread.
class token_model {
  public:
    virtual ~token_model() = default;

    [[nodiscard]] virtual const model_facts & facts() const = 0;

    // Evaluates the rows. In each branch they must follow its cached tokens without a gap. `stopped`: `stop` became
    // true during the pass, and none of these rows is cached. Throws duo::error.
    virtual decode_status decode(std::span<const row> rows, const std::atomic<bool> & stop) = 0;

    // The next pass may have these tokens: meanwhile the model may fetch what it will read. expects(): it does so now.
    [[nodiscard]] virtual bool expects() const { return false; }
    virtual void               expect(std::span<const token_id> /*tokens*/) {}

    // Sets the number of threads of the next passes. 0: all the threads that the model was given.
    virtual void use_threads(int32_t /*n*/) {}

    // Sets the scales of the model's LoRA adapters in the next passes. Empty: those of the load.
    virtual void use_scales(const lora_scales & /*scales*/) {}

    // Candidates to follow row `i_row` of the last decode, best first by log-probability + noise, at most out.size().
    // `text`: all tokens up to and including that row's; penalties read its end, and its size is the noise's position.
    // If the row has several levels, the text goes on with guesses, and its size says which level is asked for.
    // Returns how many. 0: none; with a grammar, the text is then complete. Throws duo::error if the grammar requires
    // more text and no token fits.
    virtual int32_t candidates(int32_t i_row, const sampling_params & sampling, std::span<const token_id> text,
                               std::span<candidate> out) = 0;

    // The distribution from which candidates() draws: all tokens that the filters and the grammar leave, with the logs
    // of their probabilities, most probable first. Only for texts with a temperature. Empty: with a grammar, the text
    // is complete. Throws as candidates() does.
    virtual void chances(int32_t /*i_row*/, const sampling_params & /*sampling*/, std::span<const token_id> /*text*/,
                         std::vector<candidate> & /*out*/) {
        throw error("this model tells no probabilities; use --accept noise");
    }

    // The logits of row `i_row` of the last decode, [n_vocab]; candidates() reads what is written there. Empty if the
    // model has none. grammar_of: tokens that its grammar forbids after `text` get -inf; nullptr: all stay.
    virtual std::span<float> row_logits(int32_t /*i_row*/, const sampling_params * /*grammar_of*/,
                                        std::span<const token_id> /*text*/) {
        return {};
    }

    // Of a target whose draft is a head, and of such a head.
    virtual head_states & states() { return no_states_; }

    // The model's own log-probabilities at row `i_row`, before any filter: of `token` (returned), and of the out.size()
    // most probable tokens.
    virtual float logprobs(int32_t i_row, token_id token, std::span<candidate> out) = 0;

    // Forgets positions >= `pos` of `branch`. False: the cache cannot do that, and is unchanged.
    virtual bool rollback(int32_t branch, int32_t pos) = 0;

    // Guesses that each of n texts may have in a pass over all of them. < 0: a pass can only have rows of one text.
    [[nodiscard]] virtual int32_t n_undo_together(int32_t /*n_texts*/) const { return facts().n_undo; }

    // Forgets n positions of `branch` from `pos` on; those behind them become n lower (llama.cpp's context shift).
    // False: the cache cannot do that, and is unchanged.
    virtual bool shift(int32_t /*branch*/, int32_t /*pos*/, int32_t /*n*/) { return false; }

    // Like rollback(), but goes back further if it must. Returns the positions that the branch holds then.
    virtual int32_t take_back(int32_t branch, int32_t pos) {
        return rollback(branch, pos) ? pos : rollback(branch, 0) ? 0 : n_held(branch);
    }

    // A recurrent state as it is now is worth keeping: take_back() can go to it while the text before it stays. Without
    // memory for it, nothing happens.
    virtual void                  mark(int32_t /*branch*/) {}
    [[nodiscard]] virtual int64_t mark_bytes() const { return 0; } // of all that are kept

    // Positions that the cache holds of `branch`, by its own account. With undo_kind::copy, a pass over one row may
    // leave none of it: then the next pass needs this row again.
    [[nodiscard]] virtual int32_t n_held(int32_t branch) const = 0;

    // What the cache holds of `branch`, as bytes. Throws duo::error.
    [[nodiscard]] virtual std::string save(int32_t /*branch*/) const {
        throw error("this model's cache cannot be saved");
    }

    // About how many bytes save() would return; nothing is copied. 0: unknown.
    [[nodiscard]] virtual int64_t saved_bytes(int32_t /*branch*/) const { return 0; }

    // Replaces what the cache holds of `branch` with what save() of an equal model returned for one of its branches.
    // Throws duo::error and leaves the branch empty.
    virtual void restore(int32_t /*branch*/, std::span<const char> /*saved*/) {
        throw error("this model's cache cannot be restored");
    }

    // Makes the empty branch `to` share the cached tokens of `from` before position `pos`. A recurrent state can only
    // be shared as it is: then `from` holds no more than these tokens.
    virtual void fork(int32_t from, int32_t to, int32_t pos) = 0;

    [[nodiscard]] virtual bool        is_end(token_id token) const = 0; // end of generation
    [[nodiscard]] virtual std::string piece(token_id token) const  = 0; // bytes; need not be whole characters

  private:
    head_states no_states_;
};

} // namespace duo
