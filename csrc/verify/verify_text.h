// One text as the target sees it: its tokens, what may follow them, its stop strings and figures.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "model/token_model.h"
#include "plan/guess_record.h"
#include "text/request.h"
#include "text/stop_matcher.h"
#include "text/text_context.h"
#include "text_guesses.h"

namespace duo {

// Belongs to the verify worker's thread. It knows the model's vocabulary but evaluates nothing.
class verify_text {
  public:
    // The model must outlive it.
    explicit verify_text(const token_model & model) : model_(model) {}

    // ---- its life

    void               begin(request & req, const other_texts & others = {});
    void               end();
    [[nodiscard]] bool active() const { return req_ != nullptr; }

    // While active().
    [[nodiscard]] request & req() const { return *req_; }
    [[nodiscard]] bool      cancelled() const { return req_->cancelled.load(std::memory_order_relaxed); }

    [[nodiscard]] const std::vector<token_id> & tokens() const { return tokens_; } // committed; back() is the root
    // What the models see of them.
    [[nodiscard]] const text_context & context() const { return context_; }
    void                               shift();
    // Rows for drafted tokens that context, batch and n_predict leave beside the root. n_cached: tokens in the model's
    // cache.
    [[nodiscard]] int32_t n_room(size_t n_cached) const;

    [[nodiscard]] finish_reason finish() const { return finish_; } // none: it goes on
    void                        finish(finish_reason why) { finish_ = why; }
    // Bytes at the end of the text that belong to the stop string.
    [[nodiscard]] int32_t n_drop() const { return n_drop_; }

    // ---- what may follow it, and the walk down the rows of that tree as far as the target agrees

    [[nodiscard]] text_guesses &       guesses() { return guesses_; }
    [[nodiscard]] const text_guesses & guesses() const { return guesses_; }

    void begin_walk(stance now);
    // Accepted rows of the tree, from the root down.
    [[nodiscard]] const std::vector<int32_t> & accepted() const { return accepted_; }
    // The deepest of them; -1: the root.
    [[nodiscard]] int32_t row() const { return accepted_.empty() ? -1 : accepted_.back(); }
    // The target chooses `token` to follow row(), and the text grows by it. True: the token was drafted, and row() is
    // its row now.
    bool step(token_id token, guess_record & record);
    // Ends the walk where it is: row() counts as the target's own choice. False: it has not begun.
    bool end_walk_at_row();
    // The last token as a message to the reader. finish() is set if it is the last one of the text.
    chunk_msg make_chunk(bool from_draft);

    // Ends the walk: appends the verdicts to `out` (text_guesses::commit).
    void commit(int64_t now, std::vector<verdict_msg> & out);
    // Time since the last verdict, in microseconds; nothing: this is the first one, or the first one after a shift.
    [[nodiscard]] std::optional<int64_t> us_since_verdict(int64_t now) const;
    // Time in the model, and time that was waited for the draft.
    void count_elsewhere(int64_t busy_us, int64_t wait_us);

  private:
    void resume();

    const token_model & model_;

    request *             req_ = nullptr;
    std::vector<token_id> tokens_;
    text_context          context_;
    stop_matcher          stops_;
    finish_reason         finish_ = finish_reason::none;
    int32_t               n_drop_ = 0;
    text_guesses          guesses_;
    std::vector<int32_t>  accepted_;
    int64_t               t_verdict_    = 0; // when the last one was given; 0: none yet
    int64_t               elsewhere_us_ = 0; // since then in the model, and waiting
};

} // namespace duo
