// The target's thread. It takes nodes, chooses what to verify, evaluates one pass, walks, commits, and sends chunks and
// the verdicts. Several texts share a pass.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kept_texts.h"
#include "model/acceptance.h"
#include "model/token_model.h"
#include "plan/planner.h"
#include "plan/pool_planner.h"
#include "rings/eager_wait.h"
#include "verify_slot.h"
#include "wires/usage.h"
#include "wires/wires.h"

namespace duo {

// All members belong to the thread that calls run().
class verify_worker {
  public:
    enum class draft_place : uint8_t { none, here, elsewhere };

    // n_texts: texts at once. The model's branches are divided among them. only: see pool_planner::expect().
    // n_kept_bytes: of kept_texts.
    verify_worker(token_model & model, wires & w, draft_place draft, const pair_prior & prior = {}, int32_t n_texts = 1,
                  std::optional<stance> only = {}, int64_t n_kept_bytes = 0);

    // What was learned about the pair. Only while no request runs.
    [[nodiscard]] planner & plans() { return planner_; }

    // From any thread.
    [[nodiscard]] worker_usage usage() const { return board_.read(); }
    [[nodiscard]] pass_counts  passes() const { return passes_.read(); }

    // Until the request channel is closed. Does not throw.
    void run() noexcept;

  private:
    using contact = verify_text::contact;

    static constexpr int32_t n_waits_most = 16 * n_draft_cap; // so that useless messages cannot hold up a pass for ever

    // The loop, and a text's begin and end (verify_worker.cpp).
    bool work() noexcept;
    bool work_once();
    bool take_requests() noexcept;
    void end_unbegun(request & req, finish_reason why) noexcept;
    void begin(request & req) noexcept;
    void begin_text(verify_slot & s, request & req);
    void end_texts() noexcept;
    void end(verify_slot & s, finish_reason why) noexcept;
    void keep_what_was_learned(verify_slot & s) noexcept;
    void fail(verify_slot & s, failure why) noexcept;
    void on_failed_pass(failure why) noexcept;
    void tell_usage() noexcept;
    void spend_time() noexcept;

    // The cache (verify_cache.cpp).
    verify_slot &            choose_slot(const request & req);
    verify_slot &            nearest_slot(std::span<const token_id> tokens);
    verify_slot &            oldest_slot();
    verify_slot *            oldest_ended();
    void                     keep_beginning(verify_slot & s);
    void                     cut(verify_slot & s);
    void                     drop_unheld(verify_slot & s);
    [[nodiscard]] size_t     n_to_mark(const verify_slot & s) const;
    void                     mark_state(const verify_slot & s);
    void                     mark(const verify_slot & s);
    void                     forget_rejected(verify_slot & s) noexcept;
    void                     push_out(const verify_slot & s) noexcept;
    void                     bring_back(verify_slot & s) noexcept;
    const kept_texts::text * kept_beyond(const verify_slot & s, std::span<const token_id> tokens);
    void                     clear(verify_slot & s) noexcept;
    void                     park(verify_slot & s);
    void                     make_room(size_t n_rows);
    void                     wake_parked();
    [[nodiscard]] bool       any_parked() const;
    [[nodiscard]] bool       fits(size_t n_rows) const;

    // Between texts (verify_errand.cpp).
    void          serve_errand(request & req) noexcept;
    verify_slot & errand_slot(const request & req);
    void          do_errand(verify_slot & s, request & req);
    void          score(verify_slot & s, request & req);
    void          send_errand(const verify_slot & s, const request & req);
    void          await_draft(const request & req);

    // How often guesses are right in texts of this kind.
    guess_record & guesses_of(const verify_slot & s) {
        return planner_.profile().guesses(s.text.req().sampling.kind());
    }
    [[nodiscard]] const guess_record & known_of(const verify_slot & s) const {
        return planner_.profile().guesses(s.text.req().sampling.kind());
    }

    // The texts' drafts (verify_draft.cpp).
    void                  take_nodes() noexcept;
    void                  on_message(verify_slot & s, const node_msg & msg);
    void                  on_node(verify_slot & s, const node_msg & msg);
    void                  on_link(int32_t line, bool up) noexcept;
    [[nodiscard]] int32_t line_of(const verify_slot & s) const;
    verify_slot *         drafting_at(int32_t line);
    [[nodiscard]] bool    draft_wanted(const request & req) const;
    void                  begin_draft(verify_slot & s, const request & req);
    void                  begin_draft_in_mid_text(verify_slot & s, int32_t n_window);
    void                  begin_draft_if_it_pays(verify_slot & s);
    void                  end_draft(verify_slot & s);
    int32_t               best_window(const verify_slot & s, int32_t n_left, int64_t elapsed_us) const;
    draft_reading         reading_of(const verify_slot & s, int32_t n_window) const;
    int64_t               reading_us(const draft_reading & r) const;
    void                  forget_late_begins();
    void                  tell_draft(verify_slot & s, verdict_msg v);
    void                  wake_others();
    void                  wake_reader();
    bool                  set_orders(const verify_slot & s, verdict_msg & v) const;
    void                  send_features(const verify_slot & s);

    // A pass over one text (verify_plan.cpp).
    void                 work_alone(verify_slot & s);
    void                 plan_alone(verify_slot & s);
    plan                 make_plan(verify_slot & s);
    void                 count_wait(int64_t t0, verify_slot & s);
    [[nodiscard]] size_t n_to_read(const verify_slot & s) const;
    // Round trip to the text's draft; 0: it is here.
    [[nodiscard]] int64_t away_us(const verify_slot & s) const {
        return wires_.rtt_us[size_t(line_of(s))].load(std::memory_order_relaxed);
    }
    [[nodiscard]] int32_t n_room(const verify_slot & s) const;

    // A pass over several texts (verify_pool.cpp).
    void                  work_together();
    void                  work_again(verify_slot & s, size_t n_good);
    void                  repair(verify_slot & s);
    void                  begin_drafts_together();
    bool                  plan_together();
    void                  plan_reading();
    void                  keep_one_width();
    [[nodiscard]] size_t  n_base_rows() const;
    void                  measure_piece();
    int64_t               share_rows(int32_t n_rows, bool may_wait);
    [[nodiscard]] int32_t n_verify_most(const verify_slot & s) const;
    [[nodiscard]] bool    any_cancelled() const;
    void                  order_drafts();

    // The pass itself (verify_pass.cpp).
    void                    set_rows(verify_slot & s, size_t n_read);
    bool                    evaluate(int32_t n_threads);
    decode_status           timed_decode();
    void                    measure(int32_t n_threads, int64_t branches_us);
    void                    on_evaluated(verify_slot & s);
    void                    on_prompt(verify_slot & s);
    void                    finish_pass(verify_slot & s, stance now);
    bool                    finish_unless_spoiled(verify_slot & s, stance now);
    void                    walk(verify_slot & s, stance now);
    std::optional<token_id> choose(verify_slot & s, int32_t i_row);
    void                    choose_block(verify_slot & s);
    void                    commit(verify_slot & s);
    void                    emit(verify_slot & s, bool from_draft, int32_t i_row);
    void                    trim_cache(verify_slot & s, size_t n_before);
    void                    trace_pass(verify_slot & s, const verify_stats & before, stance now, int32_t depth);

    token_model &     model_;
    wires &           wires_;
    const draft_place draft_;
    const int32_t     n_branches_; // of each slot
    eager_wait        wait_;
    planner           planner_;   // for a text that is alone
    pool_planner      pool_;      // for several
    std::vector<bool> reachable_; // by line: messages reach the draft

    // Not begun yet: an errand waits until no text is written, and a text until none is parked. First come, first
    // served. Like the other lists of texts it has room for all from the beginning.
    std::vector<request *> waiting_;

    std::vector<verify_slot>   slots_;
    std::vector<verify_slot *> active_;          // texts that are written and not parked, in the order of their begin
    verify_slot *              alone_ = nullptr; // planner_ was told of its text
    verify_slot *              last_;            // its text ended last
    kept_texts                 kept_;
    std::vector<verify_slot *> reading_;   // scratch: texts with long prompts
    std::vector<verify_slot *> again_;     // scratch: texts of a pass that failed
    std::vector<verify_slot *> pass_;      // texts with rows in the pass that is being made
    std::vector<pool_share>    shares_;    // of pass_
    pool_orders                orders_;    // for the drafts of several texts

    usage_board  board_;
    worker_usage usage_; // scratch

    pass_board            passes_;
    std::optional<size_t> did_;         // what the pass was for, see pass_counts; none: none was made
    int64_t               t_spent_ = 0; // time is counted up to here; 0: there was no text

    double   piece_row_us_ = 0.0;      // least time of a row of a prompt read in pieces; 0: unknown
    size_t   n_piece_      = SIZE_MAX; // rows of the next piece at most
    double   row_us_       = 0.0;      // time of a prompt row, as last measured; 0: unknown
    uint64_t n_begun_      = 0;
    uint64_t n_turns_      = 0;     // see verify_slot::n_turn
    bool     drafts_read_  = false; // those that begin with the pass over several texts
    bool     wakes_draft_  = false; // verdicts of several texts were sent without waking the draft
    int64_t  t_pass0_      = 0;     // of the last pass
    int64_t  t_pass1_      = 0;
    int64_t  t_woken_      = 0;     // the reader
    bool     late_chunks_  = false; // it has not been told of the last ones
    int64_t  t_together_   = 0;     // when the last pass over several texts ended; 0: the last pass was another

    // Requests with which the draft began in mid-text: late, or after its host came back. Each is kept until the draft
    // sets its draft_done.
    std::vector<std::unique_ptr<request>> late_begins_;
    uint64_t                              n_late_begins_ = 0;

    std::vector<row>         rows_;     // of the pass
    std::vector<verdict_msg> verdicts_; // scratch
    std::vector<candidate>   best_;     // scratch: alternatives for log-probabilities
    std::vector<candidate>   chances_;  // scratch: what the rule of acceptance chooses from
    acceptance               acceptance_;
    std::vector<block_level> levels_;     // scratch of choose_block()
    std::vector<token_id>    path_;       // scratch of choose_block()
    std::deque<token_id>     chosen_;     // of a block: the walk's next tokens
    std::vector<float>       own_logits_; // scratch: a row before a hook changed it
};

} // namespace duo
