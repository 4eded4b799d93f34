// Asks the planner about the texts of a pass: which rows they give, and what their drafts are told.
#pragma once

#include <cstdint>
#include <vector>

#include "client_drafts.h"
#include "plan/planner.h"
#include "planned_texts.h"
#include "target_cache.h"
#include "target_pass.h"
#include "window_choice.h"
#include "wires/wires.h"

namespace duo {

// Belongs to the verify worker's thread.
class pass_planner {
  public:
    // Model, cache and wires must outlive it.
    pass_planner(token_model & model, target_cache & cache, wires & w, const pair_prior & prior);

    [[nodiscard]] planner &            plans() { return planner_; }
    [[nodiscard]] const planner &      plans() const { return planner_; }
    [[nodiscard]] const pair_profile & profile() const { return planner_.profile(); }
    [[nodiscard]] window_choice &      window() { return window_; }
    [[nodiscard]] planned_texts &      texts() { return texts_; }

    // How often guesses are right in texts of this kind.
    [[nodiscard]] guess_record & guesses_of(const verify_slot & s) { return clients_.guesses_of(s); }
    // A step of the text's draft.
    void on_step(const verify_slot & s, const node_msg & msg, double shared) {
        clients_.on_step(s, msg.n_rows, msg.step_us, shared);
    }

    // No draft is to work now.
    [[nodiscard]] bool drafts_rest() const { return planner_.stance_now() == stance::rest || !texts_.any_draft(); }

    // Chooses drafted rows of the pass, n_rows at most. > 0: it should wait so many microseconds for nodes. may_wait:
    // for nodes.
    int64_t next(target_pass & pass, int32_t n_rows, bool may_wait);
    // What the text's draft is to do.
    [[nodiscard]] draft_wishes wishes_of(const verify_slot & s) const;
    // It is to make no guesses, because n-grams promise more.
    [[nodiscard]] bool spares_draft(verify_slot & s) const;
    // Adds it to a verdict. False: the draft works. True: it rests.
    bool set_orders(const verify_slot & s, verdict_msg & v) const;
    // A pass was evaluated. n_threads: of the target; 0: all.
    void measure(const target_pass & pass, int32_t n_threads);
    // The text that is written alone has tokens of another pass, us after those of the one before.
    void on_verdict(const verify_slot & s, double us);
    // Texts that are written together have tokens of another pass.
    void on_shared_pass(const pass_result & pass) { planner_.on_pass(pass); }

  private:
    [[nodiscard]] int32_t    n_verify_most(const verify_slot & s) const;
    [[nodiscard]] bool       is_fixed(const verify_slot & s) const;
    [[nodiscard]] text_share share_of(verify_slot & s, bool may_wait);
    [[nodiscard]] text_share options_of(const verify_slot & s) const;

    target_cache &          cache_;
    wires &                 wires_;
    planner                 planner_;
    client_drafts           clients_;
    window_choice           window_;
    planned_texts           texts_;
    std::vector<text_share> shares_; // scratch
};

} // namespace duo
