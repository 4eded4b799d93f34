// The target's thread. It takes nodes, chooses what to verify, evaluates one pass, walks, commits, and sends chunks and
// the verdict.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "planner.h"
#include "token_model.h"
#include "verify_text.h"
#include "wires.h"

namespace duo {

// All members belong to the thread that calls run(). One request at a time; its slot number travels along.
class verify_worker {
  public:
    enum class draft_place : uint8_t { none, here, elsewhere };

    verify_worker(token_model & model, wires & w, draft_place draft, const pair_prior & prior = {})
        : model_(model), wires_(w), draft_(draft), reachable_(draft == draft_place::here), text_(model) {
        planner_.expect(prior);
    }

    // What was learned about the pair. Only while no request runs.
    [[nodiscard]] planner & plans() { return planner_; }

    // Until the request channel is closed. Does not throw.
    void run() noexcept;

  private:
    using contact = verify_text::contact;

    void          serve(request & req);
    void          clear_cache() noexcept;
    void          begin(request & req);
    void          prompt();
    decode_status timed_decode(int64_t & t0, int64_t & t1);
    void          end(finish_reason why);
    int32_t       n_room() const { return text_.n_room(cached_.size()); }

    // Between texts (verify_errand.cpp).
    void serve_errand(request & req) noexcept;
    void do_errand(request & req);
    void score(request & req);
    void wait_for_draft(const request & req, bool told);

    // The text's draft (verify_draft.cpp).
    void               take_nodes();
    void               on_node(const node_msg & msg);
    void               on_link(bool up);
    [[nodiscard]] bool draft_wanted(const request & req) const;
    void               begin_draft(const request & req);
    void               begin_draft_in_mid_text();
    void               begin_draft_if_it_pays();
    int64_t            reading_us() const;
    void               forget_late_begins();
    void               tell_draft(verdict_msg v);

    // A pass (verify_plan.cpp, verify_pass.cpp).
    plan make_plan();
    void verify(const plan & p);
    void set_rows();
    void trace_pass(const plan & p, const verify_stats & before, stance stance_before, int32_t depth, int64_t t0,
                    int64_t t1);
    void on_prompt(int64_t t_end);
    void walk(int32_t i_first_row, const plan & p);
    std::optional<token_id> choose(int32_t i_row);
    void                    commit(const plan & p);
    void                    trim_cache(size_t n_before);
    void                    emit(bool from_draft, int32_t i_row);

    token_model &     model_;
    wires &           wires_;
    const draft_place draft_;
    planner           planner_;
    bool              reachable_; // messages reach the draft

    verify_text           text_;
    std::vector<token_id> cached_;           // tokens whose positions the model's cache holds
    std::vector<token_id> draft_read_;       // what the draft's cache holds of the last text
    double                row_us_   = 0.0;   // time of a prompt row, as last measured; 0: unknown
    bool                  end_owed_ = false; // the draft has not yet been told that the last request ended
    uint32_t              n_quiet_  = 0;     // verdicts for which the draft was not woken

    // Requests with which the draft began in mid-text: late, or after its host came back. Each is kept until the draft
    // sets its draft_done.
    std::vector<std::unique_ptr<request>> late_begins_;
    uint64_t                              n_late_begins_ = 0;

    std::vector<row>         rows_;       // scratch
    std::vector<verdict_msg> verdicts_;   // scratch
    std::vector<candidate>   best_;       // scratch: alternatives for log-probabilities
    std::vector<float>       own_logits_; // scratch: a row before a hook changed it
};

} // namespace duo
