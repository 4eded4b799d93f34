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
    std::vector<traced_guess>  trace{};            // of a real text, in place of a, second and claim
    double                     prompt_us  = 0.0;   // the target's reading of the prompt
    double                     reading_us = 0.0;   // the draft's, when it begins in mid-text; 0: it has begun before
    uint64_t                   seed       = 1;
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
    result run(text_planner & pl, int n_passes);

    // So many tokens, as many as one pass brings more.
    result write(text_planner & pl, int n_tokens);

    result run(text_planner & pl, const std::function<bool(const result &)> & goes_on, int n_tokens = 0);

    // What the planner says of a chain of n nodes.
    text_planner::plan ask(text_planner & pl, int32_t n, int32_t room, bool growing);

    [[nodiscard]] const pass_tree & seen() const { return pass_; }

  private:
    static double log_of(double p) { return std::log(std::clamp(p, 1e-6, 1.0)); }

    void begin(const text_planner & pl);

    // As drafts::begin_if_it_pays() does. n_left: tokens of the text that are still to come.
    bool draft_begins(const text_planner & pl, int n_left);
    void pass_without(text_planner & pl);

    // As verify_text::grow_tree() does.
    void see(const text_planner & pl);

    text_planner::plan make_plan(text_planner & pl);

    void book(const text_planner & pl, const text_planner::plan & p);

    void pass(text_planner & pl);

    // Both go on: until the target's work is done, or, while it waits, until the draft has news. False: the limit came.
    bool live(pair_profile & profile, double & work, double limit);

    // What the target chooses after a node, drawn once: the best guess, the runner-up, or neither.
    token_id chosen_after(int32_t i);

    // As verify_pass.cpp does; the number of tokens.
    int32_t walk(pair_profile & profile);

    dice                        dice_{1};
    result                      r_;
    made_up_draft               draft_;
    pass_tree                   pass_;
    std::map<node_id, token_id> chosen_;
    std::vector<int32_t>        places_;
    std::vector<float>          said_;          // scratch: estimates of siblings
    double                      shared_  = 0.0; // of the pass, beside the draft
    bool                        begun_   = false;
    bool                        fresh_   = true; // the draft had not foreseen the root
    int32_t                     n_again_ = 0;    // accepted beside the best path: evaluated once more
};

// What the race of the kernels predicts on shared cores. The times of the target's passes are off by the factor
// `wrong`, those of the draft's steps by `wrong_step`.
pair_prior prior_of(const facts & f, double wrong = 1.0, double wrong_step = 1.0);

// A pass takes `pass` us over one row and `more` us for each further one, a step c passes; a is the draft's acceptance.
void measure(pair_profile & p, double pass, double more, double c, double a, double slowdown = 1.0);

plan_params params(run_mode mode, int32_t n_max = n_draft_auto, int32_t n_min = 0);

double flat(int /*n*/);

double sloped(int n);

// A stock CPU: v(2) = 3, v(4) = 4, v(8) = 5.
double stock(int n);

} // namespace duo_test
