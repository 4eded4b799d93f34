// Models with a recurrent state: whatever the mode, the delays and the draft, the text is the target's own, and the
// target goes back only where such a state can (scripted_model.h checks that).
#include "asks.h"

using namespace duo_test;

namespace {

struct total {
    int n_texts = 0, n_accepted = 0, n_rejected = 0, n_hits = 0, n_ngram = 0, n_cancelled = 0;
};

behaviour with_state(behaviour b, dice & d, bool is_draft) {
    b.undo      = !is_draft && d.chance(0.4) ? undo_kind::snapshots : undo_kind::copy;
    b.n_undo    = d.between(1, 10);
    b.n_branch  = is_draft ? d.between(1, 16) : 1;
    b.drops_one = !is_draft && b.undo == undo_kind::copy && d.chance(0.5);
    return b;
}

void some_texts(uint64_t seed, total & sum) {
    dice           d(seed);
    const language lang{.seed = d.below(50), .p_end = d.chance(0.5) ? 0.02 : 0.0, .periodic = d.chance(0.5)};
    behaviour      target{.lang       = lang,
                          .n_ctx      = d.between(8, 90),
                          .n_batch    = d.between(2, 100),
                          .delay_us   = d.chance(0.8) ? d.between(0, 40) : 0,
                          .delay_seed = seed,
                          .heeds_stop = false};
    behaviour      draft{.lang       = lang,
                         .n_ctx      = d.between(4, 100),
                         .n_batch    = d.between(1, 40),
                         .agree      = 0.1 * d.between(0, 10),
                         .accent     = seed,
                         .delay_us   = d.chance(0.8) ? d.between(0, 60) : 0,
                         .delay_seed = seed + 1,
                         .heeds_stop = d.chance(0.8)};
    const int      who = d.between(0, 2);
    target             = who == 1 ? target : with_state(target, d, false);
    draft              = who == 0 ? draft : with_state(draft, d, true);
    pair p(target, draft);
    ask  q = random_ask(d, lang, target.n_ctx);
    for (int k = 0; k < 12; ++k) {
        const std::string note   = "seed " + std::to_string(seed) + " request " + std::to_string(k);
        const ask         before = q;
        q                        = random_ask(d, lang, target.n_ctx);
        if (d.chance(0.5)) { // the same text again, or a part of it, or more
            const size_t n = size_t(d.between(1, int32_t(before.prompt.size())));
            q.prompt.insert(q.prompt.begin(), before.prompt.begin(), before.prompt.begin() + std::ptrdiff_t(n));
            q.prompt.resize(std::min(q.prompt.size(), size_t(target.n_ctx) - 1));
        }
        const answer want = reference(lang, target.n_ctx, q);
        p.line.begin(q.make());
        answer       a;
        const size_t n_read = d.chance(0.2) ? d.below(10) : size_t(-1);
        read_some(p.line, a, n_read);
        ++sum.n_texts;
        if (a.finish == finish_reason::none) {
            p.line.cancel(*p.line.current());
            CHECK(is_beginning(a.tokens, want.tokens), note);
            ++sum.n_cancelled;
            continue;
        }
        check_same(a, want, note);
        CHECK_EQ(a.warning, std::string(), note);
        sum.n_accepted += a.stats.n_accepted;
        sum.n_rejected += a.stats.n_drafted - a.stats.n_accepted;
        sum.n_hits += a.stats.n_hits;
        sum.n_ngram += a.stats.n_ngram_accepted;
    }
}

} // namespace

TEST(texts_with_a_state_are_the_targets_own) {
    const int n_texts = check::by_scale(1600, 4000);
    total     sum;
    for (uint64_t seed = 0; sum.n_texts < n_texts; ++seed) {
        some_texts(seed, sum);
        if (check::n_failed.load() > 10) {
            return;
        }
    }
    for (const int n : {sum.n_accepted, sum.n_rejected, sum.n_hits, sum.n_ngram, sum.n_cancelled}) {
        CHECK(n > n_texts / 14, std::to_string(n));
    }
}

// A wrong guess costs rows of the next pass, not a pass of its own, and their number stays bounded.
TEST(a_wrong_guess_costs_no_pass) {
    for (const undo_kind undo : {undo_kind::snapshots, undo_kind::copy}) {
        pair         p(behaviour{.n_branch = 1, .undo = undo}, behaviour{.agree = 0.0});
        const answer a = p.run(ask{.n_predict = 60}.as(run_mode::sync, 4));
        CHECK(a.stats.n_drafted > 0, "guesses are verified");
        CHECK_EQ(a.stats.n_accepted, 0);
        CHECK_EQ(a.stats.n_passes, 60);
        CHECK(p.target.n_decoded.load() <= 61, "one more for the prompt");
    }
}

// All guesses are right: nothing is evaluated again.
TEST(right_guesses_keep_the_state) {
    for (const undo_kind undo : {undo_kind::snapshots, undo_kind::copy}) {
        pair         p(behaviour{.n_branch = 1, .undo = undo}, behaviour{});
        const answer a = p.run(ask{.n_predict = 60}.as(run_mode::sync, 5));
        CHECK_EQ(a.stats.n_accepted, a.stats.n_drafted);
        CHECK(p.target.n_decoded.load() <= a.stats.n_passes + 1, "one more for the prompt");
    }
}
