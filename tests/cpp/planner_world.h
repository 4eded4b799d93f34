// Made-up worlds for the planner: what passes and draft steps cost and how often the draft is right is given.
#pragma once

#include <array>
#include <functional>
#include <limits>
#include <map>

#include "check.h"
#include "planner_draft.h"
#include "random.h"

namespace duo_test {

struct facts {
    std::function<double(int)> v; // pass over n rows, microseconds
    double                     step_us        = 100.0;
    double                     price          = 0.05; // of one node more in a step, as a share of it
    double                     a              = 0.7;  // the best guess is right, at every position
    double                     second         = 0.0;  // where it is wrong: so often the runner-up is right
    double                     claim          = -1.0; // what the draft says of its best guess; below 0: the truth
    double                     contention     = 1.0;  // both are slower by this while both work
    double                     late           = 0.0;  // share of passes that something makes five times too slow
    double                     n_cores        = 0.0;  // shared
    double                     parallel       = 0.0;  // share of the target's work that threads divide among them
    double                     parallel_draft = 0.0;
    int32_t                    n_room         = 1000;
    int32_t                    n_levels       = 1; // of a step: see pair_prior, which has to say the same
    std::function<double(int)> a_of_age{};         // of a draft head, in place of a: by node_msg::age; none: no head
    uint64_t                   seed = 1;
};

constexpr int32_t n_branches = 16; // of the target's cache

// Time is simulated: the draft grows its tree while the target works or waits, as the two workers do.
class world : public facts {
  public:
    explicit world(const facts & f) : facts(f) {}

    struct result {
        int                n_passes  = 0;
        int                n_drafted = 0; // passes with drafted tokens
        int                n_tokens  = 0;
        int                n_waits   = 0;
        int                n_trees   = 0;   // passes with more than a chain
        int                n_alone   = 0;   // yardsticks: the draft has to stand still, though it is no time of rest
        int                n_spoilt  = 0;   // of these beside a working draft
        double             width     = 0.0; // mean of drafted tokens per pass
        double             expected  = 0.0; // tokens, by the planner
        double             us        = 0.0;
        int32_t            n_most    = 0; // widest plan
        int32_t            n_least   = 1000;
        std::array<int, 3> n_in{}; // passes by stance

        [[nodiscard]] double speed() const { return n_tokens / us; }
        [[nodiscard]] double share(stance s) const { return double(n_in[size_t(s)]) / n_passes; }
    };

    // So many passes; they go on where the last ones ended.
    result run(text_planner & pl, int n_passes) {
        return run(pl, [n_passes](const result & r) { return r.n_passes < n_passes; });
    }

    // So many tokens, as many as one pass brings more.
    result write(text_planner & pl, int n_tokens) {
        return run(pl, [n_tokens](const result & r) { return r.n_tokens < n_tokens; });
    }

    template <typename F> result run(text_planner & pl, F goes_on) {
        dice_ = dice(seed++);
        r_    = {};
        begin(pl);
        while (goes_on(r_)) {
            const double t0 = r_.us;
            const auto   p  = make_plan(pl);
            pass(pl);
            const int32_t n_tokens = walk(pl.profile());
            ++r_.n_passes;
            r_.n_tokens += n_tokens;
            pl.on_pass({.n_tokens = n_tokens, .expected = p.expected, .us = r_.us - t0});
            draft_.take_orders(pl);
        }
        r_.width /= std::max(1, r_.n_passes);
        return r_;
    }

    // What the planner says of a chain of n nodes.
    text_planner::plan ask(text_planner & pl, int32_t n, int32_t room, bool growing) {
        begin(pl);
        draft_.reset(n);
        see(pl);
        return pl.next(pass_, {.n_room = room, .growing = growing, .fresh = n == 0});
    }

    [[nodiscard]] const pass_tree & seen() const { return pass_; }

  private:
    static double log_of(double p) { return std::log(std::clamp(p, 1e-6, 1.0)); }

    void begin(const text_planner & pl) {
        draft_.best_logp  = log_of(claim < 0.0 ? a : claim);
        draft_.other_logp = log_of((1.0 - a) * second);
        draft_.has_other  = second > 0.0;
        draft_.step_us    = step_us;
        draft_.n_levels   = n_levels;
        draft_.of_head    = bool(a_of_age);
        draft_.price      = price;
        draft_.n_cores    = n_cores;
        draft_.parallel   = parallel_draft;
        draft_.take_orders(pl);
        if (draft_.tree.root().id == no_node) {
            draft_.reset();
        }
    }

    // As verify_text::grow_tree() does.
    void see(const text_planner & pl) {
        if (pl.shape().empty()) {
            pass_.begin(draft_.tree, pl.profile().guesses(guess_kind::noise), pl.least_chance());
        } else {
            pl.shape().match(draft_.tree, places_);
            pass_.begin(draft_.tree, pl.profile().guesses(guess_kind::noise), pl.shape(), places_);
        }
    }

    text_planner::plan make_plan(text_planner & pl) {
        for (bool waits = true;;) {
            draft_.choose();
            see(pl);
            const auto p = pl.next(
                pass_,
                {.n_room = n_room, .growing = waits && !draft_.batch.empty(), .fresh = fresh_, .n_base = 1 + n_again_});
            if (p.wait_us <= 0) {
                book(pl, p);
                return p;
            }
            ++r_.n_waits;
            double none = 0.0;
            waits       = live(pl.profile(), none, double(p.wait_us));
        }
    }

    void book(const text_planner & pl, const text_planner::plan & p) {
        r_.n_most  = std::max(r_.n_most, p.n_verify);
        r_.n_least = std::min(r_.n_least, p.n_verify);
        r_.n_drafted += p.n_verify > 0 ? 1 : 0;
        r_.n_trees += pass_.n_branches() > 1 ? 1 : 0;
        r_.width += p.n_verify;
        r_.expected += p.expected;
        ++r_.n_in[size_t(pl.stance_now())];
        if (draft_.told_to_rest() && pl.stance_now() != stance::rest) {
            ++r_.n_alone;
            r_.n_spoilt += !draft_.batch.empty() ? 1 : 0;
        }
    }

    void pass(text_planner & pl) {
        const auto n_rows = 1 + n_again_ + int32_t(pass_.rows().size());
        double     work = v(n_rows) * slower(n_cores, parallel, pl.threads().target) * (dice_.chance(late) ? 5.0 : 1.0);
        const double t0 = r_.us;
        shared_         = 0.0;
        live(pl.profile(), work, std::numeric_limits<double>::infinity());
        pl.profile().on_pass(n_rows, int64_t(r_.us - t0), pl.threads().target > 0 ? 1.0 : shared_ / (r_.us - t0));
    }

    // Both go on: until the target's work is done, or, while it waits, until the draft has news. False: the limit came.
    bool live(pair_profile & profile, double & work, double limit) {
        const bool busy = work > 0.0;
        for (;;) {
            draft_.choose();
            const bool drafts = !draft_.batch.empty();
            if (!busy && !drafts) {
                return true;
            }
            const double slow = busy && drafts ? contention : 1.0;
            double       dt   = limit;
            dt                = busy ? std::min(dt, work * slow) : dt;
            dt                = drafts ? std::min(dt, draft_.left * slow) : dt;
            r_.us += dt;
            limit -= dt;
            shared_ += busy && drafts ? dt : 0.0;
            work -= busy ? dt / slow : 0.0;
            if (drafts) {
                draft_.took += dt;
                draft_.beside += busy ? dt : 0.0;
                draft_.left -= dt / slow;
                if (draft_.left < 1e-6) {
                    draft_.finish_step(profile);
                    if (!busy) {
                        return true;
                    }
                }
            }
            if (busy ? work < 1e-6 : limit <= 0.0) {
                return busy;
            }
        }
    }

    // What the target chooses after a node, drawn once: the best guess, the runner-up, or neither.
    token_id chosen_after(int32_t i) {
        const auto [it, fresh] = chosen_.try_emplace(draft_.tree.at(i).id, 3);
        if (fresh) {
            const int32_t first = draft_.tree.first_child(i);
            const double  right = a_of_age && first >= 0 ? a_of_age(draft_.tree.at(first).age) : a;
            it->second          = dice_.chance(right) ? 1 : dice_.chance(second) ? 2 : 3;
        }
        return it->second;
    }

    // As verify_pass.cpp does; the number of tokens.
    int32_t walk(pair_profile & profile) {
        const token_tree & tree     = draft_.tree;
        int32_t            n_tokens = 0;
        int32_t            i_node   = 0;
        n_again_                    = 0;
        for (int32_t i_row = -1;;) {
            const token_id token = chosen_after(i_node);
            for (int32_t i = i_node + 1; i < tree.size(); ++i) {
                if (tree.at(i).parent == i_node) {
                    profile.guesses(guess_kind::noise)
                        .on_child(tree.at(i).logp, tree.at(i).token == token, tree.at(i).age);
                    if (tree.at(i).rank == 0) {
                        profile.guesses(guess_kind::noise)
                            .on_guess(n_tokens, tree.at(i).token == token, fresh_, tree.at(i).age);
                    }
                }
            }
            ++n_tokens;
            i_row = pass_.child_row(i_row, token);
            if (i_row < 0) {
                fresh_ = !draft_.commit(i_node, token);
                chosen_.erase(chosen_.begin(), chosen_.lower_bound(tree.root().id));
                return n_tokens;
            }
            n_again_ += pass_.rows()[size_t(i_row)].branch == 0 ? 0 : 1;
            i_node = pass_.at_row(i_row).i_node;
        }
    }

    dice                        dice_{1};
    result                      r_;
    made_up_draft               draft_;
    pass_tree                   pass_;
    std::map<node_id, token_id> chosen_;
    std::vector<int32_t>        places_;
    double                      shared_  = 0.0;  // of the pass, beside the draft
    bool                        fresh_   = true; // the draft had not foreseen the root
    int32_t                     n_again_ = 0;    // accepted beside the best path: evaluated once more
};

inline plan_params params(run_mode mode, int32_t n_max = n_draft_auto, int32_t n_min = 0) {
    return {.mode = mode, .n_max = n_max, .n_min = n_min};
}

inline double flat(int /*n*/) {
    return 10000.0;
}

inline double sloped(int n) {
    return 10000.0 * (1.0 + 0.1 * (n - 1));
}

// A stock CPU: v(2) = 3, v(4) = 4, v(8) = 5.
inline double stock(int n) {
    return 10000.0 * (n == 1 ? 1.0 : n <= 4 ? 3.0 + 0.5 * (n - 2) : 4.0 + 0.25 * (n - 4));
}

} // namespace duo_test
