#include "planner_world.h"

namespace duo_test {

world::result world::run(text_planner & pl, int n_passes) {
    return run(pl, [n_passes](const result & r) { return r.n_passes < n_passes; });
}

world::result world::write(text_planner & pl, int n_tokens) {
    return run(pl, [n_tokens](const result & r) { return r.n_tokens < n_tokens; }, n_tokens);
}

world::result world::run(text_planner & pl, const std::function<bool(const result &)> & goes_on, int n_tokens) {
    dice_  = dice(seed++);
    r_     = {};
    begun_ = reading_us == 0.0;
    begin(pl);
    while (goes_on(r_)) {
        const double t0 = r_.us;
        begun_          = begun_ || draft_begins(pl, n_tokens - r_.n_tokens);
        if (!begun_) {
            pass_without(pl);
            continue;
        }
        const auto p = make_plan(pl);
        pass(pl);
        const int32_t n = walk(pl.profile());
        ++r_.n_passes;
        r_.n_tokens += n;
        pl.on_pass({.n_tokens = n, .expected = p.expected, .us = r_.us - t0});
        draft_.take_orders(pl);
    }
    r_.width /= std::max(1, r_.n_passes);
    return r_;
}

bool world::draft_begins(const text_planner & pl, int n_left) {
    if (r_.n_passes == 0 || pl.stance_now() == stance::rest ||
        !pl.worth().pays(int64_t(reading_us), n_left, int64_t(prompt_us + r_.us))) {
        return false;
    }
    r_.us += reading_us; // the next pass waits for it
    return true;
}

void world::pass_without(text_planner & pl) {
    see(pl);
    book(pl, {});
    r_.us += v(1);
    pl.profile().on_pass(1, int64_t(v(1)), 0.0);
    r_.n_tokens += walk(pl.profile());
    ++r_.n_passes;
    pl.on_pass({.n_tokens = 1, .expected = 1.0, .us = v(1), .drafting = false});
}

text_planner::plan world::ask(text_planner & pl, int32_t n, int32_t room, bool growing) {
    begin(pl);
    draft_.reset(n);
    see(pl);
    return pl.next(pass_, {.n_room = room, .growing = growing, .fresh = n == 0});
}

void world::begin(const text_planner & pl) {
    draft_.best_logp  = log_of(claim < 0.0 ? a : claim);
    draft_.other_logp = log_of((1.0 - a) * second);
    draft_.has_other  = second > 0.0 || !trace.empty();
    draft_.trace      = trace;
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

void world::see(const text_planner & pl) {
    if (pl.shape().empty()) {
        pass_.begin(draft_.tree, pl.profile().guesses(guess_kind::noise), pl.least_chance());
    } else {
        pl.shape().match(draft_.tree, places_);
        pass_.begin(draft_.tree, pl.profile().guesses(guess_kind::noise), pl.shape(), places_);
    }
}

text_planner::plan world::make_plan(text_planner & pl) {
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

void world::book(const text_planner & pl, const text_planner::plan & p) {
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

void world::pass(text_planner & pl) {
    const auto   n_rows = 1 + n_again_ + int32_t(pass_.rows().size());
    double       work   = v(n_rows) * slower(n_cores, parallel, pl.threads().target) * (dice_.chance(late) ? 5.0 : 1.0);
    const double t0     = r_.us;
    shared_             = 0.0;
    live(pl.profile(), work, std::numeric_limits<double>::infinity());
    pl.profile().on_pass(n_rows, int64_t(r_.us - t0), pl.threads().target > 0 ? 1.0 : shared_ / (r_.us - t0));
}

bool world::live(pair_profile & profile, double & work, double limit) {
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

token_id world::chosen_after(int32_t i) {
    const auto [it, fresh] = chosen_.try_emplace(draft_.tree.at(i).id, 3);
    if (fresh) {
        if (!trace.empty()) {
            const int32_t right = draft_.guess_after(i).right;
            return it->second   = right > 0 ? right : 3;
        }
        const int32_t first = draft_.tree.first_child(i);
        const double  right = a_of_age && first >= 0 ? a_of_age(draft_.tree.at(first).age) : a;
        it->second          = dice_.chance(right) ? 1 : dice_.chance(second) ? 2 : 3;
    }
    return it->second;
}

int32_t world::walk(pair_profile & profile) {
    const token_tree & tree     = draft_.tree;
    int32_t            n_tokens = 0;
    int32_t            i_node   = 0;
    n_again_                    = 0;
    for (int32_t i_row = -1;;) {
        const token_id token = chosen_after(i_node);
        int32_t        right = -1;
        said_.clear();
        for (int32_t i = i_node + 1; i < tree.size(); ++i) {
            if (tree.at(i).parent == i_node) {
                right = tree.at(i).token == token ? int32_t(said_.size()) : right;
                said_.push_back(tree.at(i).logp);
                profile.guesses(guess_kind::noise).on_child(tree.at(i).logp, tree.at(i).token == token, tree.at(i).age);
                if (tree.at(i).rank == 0) {
                    profile.guesses(guess_kind::noise)
                        .on_guess(n_tokens, tree.at(i).token == token, fresh_, tree.at(i).age);
                }
            }
        }
        profile.guesses(guess_kind::noise).on_choice(said_, right);
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

pair_prior prior_of(const facts & f, double wrong, double wrong_step) {
    pair_prior p{.shared = true};
    for (const int n : {1, 2, 4, 64}) {
        p.pass_us.emplace_back(n, wrong * f.v(n));
    }
    p.step_us = wrong_step * f.step_us;
    return p;
}

void measure(pair_profile & p, double pass, double more, double c, double a, double slowdown) {
    for (const double beside : {0.0, 1.0}) {
        const double slow = beside > 0.0 ? slowdown : 1.0;
        for (int32_t n = 1; n <= 48; ++n) {
            for (int i = 0; i < 3; ++i) {
                p.on_pass(n, int64_t(slow * (pass + more * (n - 1))), beside);
            }
        }
        for (int32_t n = 1; n <= n_step_cap; ++n) {
            for (int i = 0; i < 3; ++i) {
                p.on_step(n, float(slow * c * pass), beside);
            }
        }
    }
    for (int i = 0; i < 1000; ++i) {
        for (int32_t level = 0; level < 16; ++level) {
            p.guesses(guess_kind::noise).on_guess(level, i * 37 % 100 < int(100 * a), false);
        }
    }
}

plan_params params(run_mode mode, int32_t n_max, int32_t n_min) {
    return {.mode = mode, .n_max = n_max, .n_min = n_min};
}

double flat(int /*n*/) {
    return 10000.0;
}

double sloped(int n) {
    return 10000.0 * (1.0 + 0.1 * (n - 1));
}

double stock(int n) {
    return 10000.0 * (n == 1 ? 1.0 : n <= 4 ? 3.0 + 0.5 * (n - 2) : 4.0 + 0.25 * (n - 4));
}

} // namespace duo_test
