// Decides what to verify, whether to wait for the drafts, and what they should do meanwhile: for one text or for
// several that share a pass. It goes by measurements, not by configured numbers. Which rows are worth their time:
// row_values. Whether drafts run ahead, take turns or rest: stance_choice. What that would bring: stance_rates.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "draft_wishes.h"
#include "draft_worth.h"
#include "pair_profile.h"
#include "row_choice.h"
#include "stance_choice.h"
#include "stance_rates.h"
#include "text_share.h"
#include "wait_rule.h"

namespace duo {

// What was learned of one draft: its measurements, and the ways of generating with it.
struct draft_memory {
    draft_profile       profile{};
    stance_memory::ways ways{};
};

// Owned by the verify worker.
class planner {
  public:
    planner()                            = default;
    planner(const planner &)             = delete;
    planner & operator=(const planner &) = delete;

    // What is known about the pair before it has computed anything.
    void expect(const pair_prior & prior);
    // Another draft is at work from now on. other: what is known of it; it takes what was known of the one before.
    // begin() must follow.
    void exchange_draft(draft_memory & other);

    // Texts are written from now on. Several texts give the options that they have in common.
    void begin(const plan_params & params, const text_limits & limits = {});
    // Chooses the rows of the next pass, in the trees of its texts. n_rows: drafted rows that batch and cache have
    // left. > 0: the pass should not start yet, but wait so many microseconds for the next node at most.
    [[nodiscard]] int64_t next(std::span<text_share> texts, int32_t n_rows = n_draft_cap);
    // The pass that was planned last is done.
    void on_pass(const pass_result & pass);
    // Only options and n_most of the text count.
    [[nodiscard]] draft_wishes orders(const text_share & t) const { return wishes_.of(t); }
    // Its n-grams count as well: see wish_rule.
    [[nodiscard]] bool spares(const text_share & t) const { return wishes_.spares(t); }

    [[nodiscard]] stance stance_now() const { return stances_.now(); }
    [[nodiscard]] bool   measuring() const { return stances_.measuring(); } // see stance_choice
    // The draft works while the target does.
    [[nodiscard]] bool                draft_works() const { return stances_.draft_works(); }
    [[nodiscard]] core_split          threads() const { return stances_.threads(); }
    [[nodiscard]] const draft_worth & worth() const { return worth_; }

    [[nodiscard]] pair_profile &       profile() { return profile_; }
    [[nodiscard]] const pair_profile & profile() const { return profile_; }

    // All that was learned, as numbers for a file. restore() takes what saved() gave, and ignores any other list. Call
    // them while no text is being generated.
    [[nodiscard]] std::vector<double> saved() const;
    void                              restore(std::span<const double> numbers);
    void                              forget();

  private:
    pair_profile  profile_;
    stance_rates  rates_{profile_};
    stance_choice stances_{profile_, rates_};
    wish_rule     wishes_{profile_, rates_, stances_};
    wait_rule     waits_{rates_, stances_, wishes_};
    draft_worth   worth_{profile_, rates_};
    row_choice    rows_{profile_, rates_, stances_, waits_};
    bool          counts_ = false; // what a draft saves is learned from the text
};

} // namespace duo
