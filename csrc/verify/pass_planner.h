// Asks the planner about the texts of a pass: which rows they give, and what their drafts are told.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "client_drafts.h"
#include "plan/planner.h"
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

    // How often guesses are right in texts of this kind.
    [[nodiscard]] guess_record & guesses_of(const verify_slot & s) { return clients_.guesses_of(s); }
    // A step of the text's draft.
    void on_step(const verify_slot & s, const node_msg & msg, double shared) {
        clients_.on_step(s, msg.n_rows, msg.step_us, shared);
    }

    // This text is written alone from now on, unless that is so already.
    void               begin_alone(verify_slot & s);
    [[nodiscard]] bool is_alone(const verify_slot & s) const { return planned_slot_ == &s; }
    [[nodiscard]] bool is_alone() const { return planned_slot_ != nullptr; }
    void               end_alone() { planned_slot_ = nullptr; }
    // A text has ended: whoever is left is told to the planner anew. A text that is parked while a pass is planned
    // leaves the others with the terms that they have.
    void on_end() {
        planned_slot_ = nullptr;
        begun_        = {};
    }
    // These texts share each pass from now on.
    void begin_together(const std::vector<verify_slot *> & texts);
    // No draft is to work now.
    [[nodiscard]] bool drafts_rest() const { return planner_.stance_now() == stance::rest || !any_draft_; }

    // Chooses drafted rows of the pass, n_rows at most. > 0: it should wait so many microseconds for nodes. may_wait:
    // for nodes.
    int64_t next(target_pass & pass, int32_t n_rows, bool may_wait);
    // What the text's draft is to do.
    [[nodiscard]] draft_wishes wishes_of(const verify_slot & s) const;
    // It is to make no guesses, because n-grams of the text promise more.
    [[nodiscard]] bool spares_draft(verify_slot & s) const;
    // Adds it to a verdict. False: the draft works. True: it rests.
    bool set_orders(const verify_slot & s, verdict_msg & v) const;
    // A pass was evaluated. n_threads: of the target; 0: all.
    void measure(const target_pass & pass, int32_t n_threads);

  private:
    [[nodiscard]] int32_t n_texts() const { return std::max(1, begun_.n_texts); }
    // Guesses that the target can take back in a pass.
    [[nodiscard]] int32_t    n_undo(int32_t n_texts) const;
    [[nodiscard]] int32_t    n_verify_most(const verify_slot & s) const;
    [[nodiscard]] bool       is_fixed(const verify_slot & s) const;
    [[nodiscard]] text_share share_of(verify_slot & s, bool may_wait);
    [[nodiscard]] text_share options_of(const verify_slot & s) const;

    // Which texts share the passes, as far as the planner is concerned.
    struct text_terms {
        int32_t    n_texts = 0; // 0: one, or none yet
        bool       drafts  = false;
        bool       sync    = false;
        bool       always  = false;
        guess_kind kind    = guess_kind::noise;
        uint64_t   client  = 0; // whose draft it goes by

        bool operator==(const text_terms &) const = default;
    };

    token_model &           model_;
    target_cache &          cache_;
    wires &                 wires_;
    planner                 planner_;
    client_drafts           clients_;
    window_choice           window_;
    verify_slot *           planned_slot_ = nullptr; // the planner was told of its text
    node_id                 last_planned_ = no_node; // the last text that it was told of
    text_terms              begun_        = {};      // or of these
    bool                    any_draft_    = false;
    std::vector<text_share> shares_; // scratch
};

} // namespace duo
