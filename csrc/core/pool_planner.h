// Plans passes over several texts.
//
// All texts share one pass, so their drafted nodes compete for its rows. A node is verified if its chance is above
// R times the cost of one more row, where R is the tokens per time of all texts together: the rule of planner.h. Rows
// become more expensive with their number, so with many texts speculation fades by itself.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "pace.h"
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
    bool        growing  = false;   // its draft may still add nodes, and may be waited for
    int64_t     away_us  = 0;       // its draft is elsewhere: see situation
    int32_t     n_wait   = 0;       // levels that are waited for, if turns are taken
    int32_t     n_branch = 1;       // branches of the cache for a tree

    double expected = 1.0; // out: tokens that the text will probably grow by
};

// Orders for the draft of each text.
struct pool_orders {
    int32_t n_ahead    = 0; // levels below the root; 0: rest
    int32_t n_branch   = 1; // frontier nodes of a text in a step
    float   least_path = 0; // nodes with less chance are not expanded
};

// Owned by the verify worker.
class pool_planner {
  public:
    // shared: both models are on the same cores, so they take turns.
    void expect(bool shared) { shared_ = shared; }

    // Chooses the rows of all trees. > 0: the pass should wait so many microseconds for nodes. n_rows: drafted rows
    // that batch and cache allow.
    [[nodiscard]] int64_t next(std::span<pool_share> texts, const pair_profile & profile, int32_t n_rows);
    // The pass over n texts brought so many tokens and took so long, with its wait.
    void on_pass(size_t n_texts, const pair_profile & profile, int32_t n_tokens, double us);

    // For n_texts texts. n_most: drafted nodes of a text in a pass at most.
    [[nodiscard]] pool_orders orders(size_t n_texts, const pair_profile & profile, int32_t n_most);

    [[nodiscard]] bool turns() const { return shared_; }

  private:
    static constexpr size_t n_texts_cap = 16; // numbers of texts that are told apart

    // What is known of speculation with so many texts.
    struct record {
        pace     own;           // of passes with drafts
        uint32_t n_rest    = 0; // length of the last rest, passes
        uint32_t n_left    = 0; // of the rest that is on
        int32_t  n_no_gain = 0; // passes in a row in which drafts could bring nothing
    };

    struct way {
        int32_t k    = 0;   // guesses of each text
        double  rate = 0.0; // tokens per microsecond, all texts
    };

    [[nodiscard]] double rate(size_t n_texts, const pair_profile & profile) const;
    [[nodiscard]] way    best_turns(size_t n_texts, const pair_profile & profile, int32_t n_most) const;
    [[nodiscard]] bool   wants_wait(const pool_share & t) const;
    static void          take(pool_share & t, int32_t n);
    static void          begin_rest(record & r);

    bool                                shared_ = false;
    std::array<record, n_texts_cap + 1> records_{};
    bool                                drafting_ = false; // by the last orders

    struct node {
        double  chance = 0.0;
        int32_t text   = 0;
    };
    std::vector<node>    nodes_; // scratch
    std::vector<int32_t> n_;     // scratch: nodes of each text
};

} // namespace duo
