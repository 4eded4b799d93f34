// Plans passes over several texts.
//
// All texts share one pass, so their drafted nodes compete for its rows. A node is verified if its chance is above
// R times the cost of one more row, where R is the tokens per time of all texts together: the rule of planner.h. Rows
// become more expensive with their number, so with many texts speculation fades by itself.
//
// There are two ways to speculate, and the planner takes the one that brings most by what was measured:
//   ahead    all texts are in each pass, and the draft works beside it; a text that missed gives its root
//   by turn  the draft works between the passes
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/messages.h"
#include "pace.h"
#include "pair_prior.h"
#include "pair_profile.h"
#include "pass_tree.h"

namespace duo {

// One text's part in such a pass.
struct pool_share {
    pass_tree * tree     = nullptr; // nullptr: only rows of its prompt
    int32_t     n_base   = 1;       // its rows besides drafted ones
    int32_t     n_most   = 0;       // drafted nodes at most
    int32_t     n_min    = 0;       // fewer drafted nodes are not worth verifying
    bool        fixed    = false;   // the user or a test has fixed what is verified: as many of the nodes as possible
    bool        wide     = false;   // of these all, not only the best path
    bool        drafting = false;   // it has a draft
    bool        growing  = false;   // its draft may still add nodes, and may be waited for
    int64_t     away_us  = 0;       // its draft is elsewhere: see situation
    int32_t     n_wait   = 0;       // levels that are waited for, unless the draft runs ahead
    int32_t     n_branch = 1;       // branches of the cache for a tree

    double expected = 1.0; // out: tokens that the text will probably grow by
};

// What the texts of the next passes allow.
struct pool_wishes {
    int32_t n_most   = 0;     // drafted nodes of a text in a pass; 0: no text has a draft
    bool    sync     = false; // no text allows its draft to run ahead
    bool    no_waits = false; // no text may wait for another one's draft
    bool    always   = false; // speculate whether it pays or not

    guess_kind kind = guess_kind::noise; // of the first of them
};

// Orders for the draft of each text.
struct pool_orders {
    int32_t n_ahead    = 0; // levels below the root; 0: rest
    int32_t n_branch   = 1; // frontier nodes of a text in a step
    int32_t n_wait     = 0; // guesses that a pass waits for, unless the draft runs ahead
    float   least_path = 0; // nodes with less chance are not expanded
};

// Owned by the verify worker.
class pool_planner {
  public:
    // On the same cores models take turns. only: for tests, the one way that is taken, whether it pays or not.
    void expect(const pair_prior & prior, std::optional<stance> only = {}) {
        shared_   = prior.shared;
        n_levels_ = prior.n_levels;
        only_     = only;
    }

    // How the texts are written now: as orders() has decided.
    [[nodiscard]] stance stance_now() const { return now_; }

    // For the next pass, of n_texts texts that are written.
    [[nodiscard]] pool_orders orders(size_t n_texts, const pair_profile & profile, const pool_wishes & wishes);

    // Chooses the rows of all trees. > 0: the pass should wait so many microseconds for nodes. n_rows: drafted rows
    // that batch and cache allow.
    [[nodiscard]] int64_t next(std::span<pool_share> texts, const pair_profile & profile, int32_t n_rows);
    // The pass brought so many tokens and took so long, with its wait. reads: drafts that begin read their texts in it.
    void on_pass(const pair_profile & profile, int32_t n_tokens, double us, bool reads = false);

    // For tests: what a way would bring with so many texts, by what is known; tokens per microsecond.
    [[nodiscard]] double rate_of(stance s, size_t n_texts, const pair_profile & profile, int32_t n_most) const;

  private:
    static constexpr size_t n_texts_cap = 16; // numbers of texts that are told apart

    // What is known of speculation with so many texts.
    struct record {
        stance                      now = stance::rest;
        std::array<pace, n_stances> own{};         // of passes with drafts, by stance
        odds                        ready{};       // a text that ran ahead had its guesses ready
        uint32_t                    n_rest    = 0; // length of the last rest, passes
        uint32_t                    n_left    = 0; // of the rest that is on
        int32_t                     n_no_gain = 0; // passes in a row in which drafts could bring nothing
        uint32_t                    n_passes  = 0;
        double                      spent_us  = 0.0; // on drafts since the last rest, less what they have saved

        [[nodiscard]] pace & now_own() { return own[size_t(now)]; }
    };

    struct way {
        int32_t k    = 0;   // guesses of each text
        double  rate = 0.0; // tokens per microsecond, all texts
    };

    // What the ways would bring (pool_ways.cpp).
    [[nodiscard]] way    best_of(stance s, size_t n_texts, const pair_profile & profile, int32_t n_most) const;
    [[nodiscard]] double believed(stance s, double expected, size_t n_texts, const pair_profile & profile) const;
    void choose_way(record & r, size_t n_texts, const pair_profile & profile, const pool_wishes & wishes);
    [[nodiscard]] double   rate(size_t n_texts, const pair_profile & profile) const;
    [[nodiscard]] record & record_of(size_t n_texts) { return records_[sync_ ? 1 : 0][std::min(n_texts, n_texts_cap)]; }
    [[nodiscard]] const record & record_of(size_t n_texts) const {
        return records_[sync_ ? 1 : 0][std::min(n_texts, n_texts_cap)];
    }
    static void begin_rest(record & r, double plain_us);

    // A pass (pool_planner.cpp).
    [[nodiscard]] bool wants_wait(const pool_share & t) const;
    void        choose(std::span<const pool_share> texts, const pair_profile & profile, int32_t n_rows, double r);
    static void take(pool_share & t, int32_t n);

    // Steps of the draft for so many levels.
    [[nodiscard]] int32_t n_steps(int32_t n_levels) const { return steps_for(n_levels, n_levels_); }

    bool                  shared_   = false;
    int32_t               n_levels_ = 1; // see pair_prior
    std::optional<stance> only_;
    // By number of texts. If all take turns, what was learned says little about texts whose drafts may run ahead.
    std::array<std::array<record, n_texts_cap + 1>, 2> records_{};
    bool                                               sync_    = false; // of the last orders
    size_t                                             n_texts_ = 0;     // of the last orders
    stance                                             now_     = stance::rest;
    way                                                way_{};
    bool                                               no_waits_ = false; // see pool_wishes
    guess_kind                                         kind_     = guess_kind::noise;

    struct node {
        double  chance = 0.0;
        int32_t text   = 0;
    };
    std::vector<node>    nodes_; // scratch
    std::vector<int32_t> n_;     // scratch: nodes of each text
};

} // namespace duo
