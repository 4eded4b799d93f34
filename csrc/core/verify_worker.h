// The target's thread: take nodes, choose what to verify, one pass, walk, commit, send chunks and the verdict.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "mirror_tree.h"
#include "ngram_index.h"
#include "pass_tree.h"
#include "planner.h"
#include "stop_matcher.h"
#include "token_model.h"
#include "wires.h"

namespace duo {

constexpr size_t n_ngram_paths = 4; // continuations from the text itself

// All members belong to the thread that calls run(). One request at a time; its slot number travels along.
class verify_worker {
  public:
    enum class draft_place : uint8_t { none, here, elsewhere };

    verify_worker(token_model & model, wires & w, draft_place draft, const pair_prior & prior = {})
        : model_(model), wires_(w), draft_(draft), reachable_(draft == draft_place::here) {
        planner_.expect(prior);
    }

    // What was learned of the pair; while no request runs.
    [[nodiscard]] planner & plans() { return planner_; }

    // Until the request channel is closed. Does not throw.
    void run() noexcept;

  private:
    // How this text's draft is to be reached.
    enum class contact : uint8_t {
        none,     // there is none, it failed, or its host was lost
        owed,     // it is told to begin when that pays
        returned, // its host came back in mid-text: it is told to begin
        reading,  // it was told so late, and has sent no node yet
        at_work,
        late, // it let a wait run out and has sent nothing since
    };

    void               serve(request & req);
    void               begin(request & req);
    void               resume(const request & req);
    void               begin_draft(const request & req);
    void               begin_draft_in_mid_text();
    void               begin_draft_if_it_pays();
    int64_t            reading_us() const;
    [[nodiscard]] bool draft_wanted(const request & req) const;
    void               prompt();
    decode_status      timed_decode(int64_t & t0, int64_t & t1);
    void               take_nodes();
    void               on_node(const node_msg & msg);
    void               on_link(bool up);
    plan               make_plan();
    void               grow_tree();
    void               verify(const plan & p);
    void               on_prompt(int64_t t_end);
    void               walk(int32_t i_first_row, const plan & p);
    void               learn_from(int32_t i_node, int32_t level, token_id chosen);
    void               commit(const plan & p);
    void               trim_cache(size_t n_before);
    bool               emit(token_id token, bool from_draft, int32_t i_row);
    void               tell_draft(verdict_msg v);
    void               end(finish_reason why);

    [[nodiscard]] bool    cancelled() const { return req_->cancelled.load(std::memory_order_relaxed); }
    [[nodiscard]] int32_t n_room() const;
    [[nodiscard]] int32_t n_text() const { return int32_t(text_.size()); }
    [[nodiscard]] bool    drafting() const { return contact_ >= contact::reading; }
    [[nodiscard]] bool draft_may_grow() const { return drafting() && contact_ != contact::late && !mirror_.paused(); }

    token_model &     model_;
    wires &           wires_;
    const draft_place draft_;
    planner           planner_;

    request *             req_ = nullptr;
    std::vector<token_id> text_;   // prompt + committed tokens; back() is the root
    std::vector<token_id> cached_; // tokens whose positions the model's cache holds
    mirror_tree           mirror_;
    ngram_index           ngrams_;
    pass_tree             tree_; // what the next pass may verify, and what was chosen of it
    stop_matcher          stops_;
    const request *       draft_request_ = nullptr; // what the draft was told to begin last
    bool                  reachable_     = false;   // a draft that is elsewhere: messages reach it
    contact               contact_       = contact::none;
    std::vector<token_id> draft_read_;           // what the draft's cache holds of the last text
    int32_t               n_draft_read_ = 0;     // and of this one
    double                row_us_       = 0.0;   // of a prompt, as last measured; 0: unknown
    bool                  end_owed_     = false; // the draft has not yet been told that the last request ended
    finish_reason         finish_       = finish_reason::none;
    int32_t               n_drop_       = 0; // bytes of the text that belong to the stop string
    int64_t               t_verdict_    = 0; // when the last one was given; 0: none yet
    int64_t               t_elsewhere_  = 0; // since then in the model, and waiting
    bool                  was_hit_      = false;
    uint32_t              n_quiet_      = 0; // verdicts for which the draft was not woken

    // Beginnings in mid-text, late or after the draft's host came back; kept until the draft lets go of them.
    std::vector<std::unique_ptr<request>> late_begins_;
    uint64_t                              n_late_begins_ = 0;

    std::vector<row>                          rows_;      // scratch
    std::vector<int32_t>                      accepted_;  // scratch: rows of tree_ on the accepted path
    std::vector<int32_t>                      places_;    // scratch
    std::vector<token_id>                     tail_;      // scratch
    std::array<ngram_proposal, n_ngram_paths> proposals_; // of the text's own end, best first
    size_t                                    n_proposals_ = 0;
    ngram_proposal                            proposal_below_; // scratch
    std::vector<candidate>                    best_;           // scratch: alternatives for log-probabilities
};

} // namespace duo
