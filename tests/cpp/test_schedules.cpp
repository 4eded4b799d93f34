// Thousands of short runs, each with its own delays in both models and in the reader, and a random request.
#include "asks.h"

using namespace duo_test;

namespace {

struct total {
    int n_requests = 0, n_cancelled = 0, n_accepted = 0, n_rejected = 0, n_hits = 0;
    int n_side = 0, n_beside = 0, n_ngram_accepted = 0, n_ngram_rejected = 0, n_shaped = 0, n_skipping = 0;
    int n_shifts = 0, n_after_shifts = 0;
};

void one_pipeline(uint64_t seed, total & sum) {
    dice            d(seed);
    const language  lang{.seed = d.below(50), .p_end = d.chance(0.5) ? 0.02 : 0.0, .periodic = d.chance(0.5)};
    const behaviour target{.lang       = lang,
                           .n_ctx      = d.between(8, 90),
                           .n_batch    = d.between(1, 100),
                           .n_branch   = d.between(1, 16),
                           .n_spare    = d.chance(0.5) ? 0 : 64,
                           .delay_us   = d.chance(0.8) ? d.between(0, 40) : 0,
                           .delay_seed = seed,
                           .shifts     = d.chance(0.8),
                           .heeds_stop = d.chance(0.8)};
    const behaviour draft{.lang       = lang,
                          .n_ctx      = d.between(4, 100),
                          .n_batch    = d.between(1, 40),
                          .n_branch   = d.between(1, 16),
                          .n_spare    = d.chance(0.5) ? d.between(0, 6) : 64,
                          .second     = 0.1 * d.between(0, 10),
                          .agree      = 0.1 * d.between(0, 10),
                          .accent     = seed,
                          .delay_us   = d.chance(0.8) ? d.between(0, 60) : 0,
                          .delay_seed = seed + 1,
                          .heeds_stop = d.chance(0.8)};
    pair            p(target, draft, d.chance(0.2));
    ask             q = random_ask(d, lang, target.n_ctx);
    for (int k = 0; k < 12; ++k) {
        // Some prompts continue the text before, so that caches are reused.
        const ask         before = q;
        const std::string note   = "seed " + std::to_string(seed) + " request " + std::to_string(k);
        q                        = random_ask(d, lang, target.n_ctx);
        if (d.chance(0.4)) {
            q.prompt = before.prompt;
            q.prompt.resize(size_t(d.between(1, int32_t(q.prompt.size()))));
        }
        p.line.begin(q.make());
        answer     a;
        const bool slow = d.chance(0.2);
        // Read all of it, or some and then cancel.
        const size_t n_read = d.chance(0.2) ? d.below(10) : size_t(-1);
        while (a.tokens.size() < n_read && read_some(p.line, a, a.tokens.size() + 1)) {
            if (slow) {
                loiter(d.next(), 100);
            }
        }
        ++sum.n_requests;
        if (a.finish == finish_reason::none) {
            if (d.chance(0.5)) {
                loiter(d.next(), 200);
            }
            p.line.cancel(*p.line.current());
            CHECK(!p.line.running());
            const answer want = reference(lang, target.n_ctx, q);
            CHECK(a.tokens.size() <= want.tokens.size() &&
                      std::equal(a.tokens.begin(), a.tokens.end(), want.tokens.begin()),
                  note);
            ++sum.n_cancelled;
            continue;
        }
        check_same(a, reference(lang, target.n_ctx, q), note);
        check_stats(a, q, note);
        CHECK_EQ(a.warning, std::string(), note);
        sum.n_accepted += a.stats.n_accepted;
        sum.n_rejected += a.stats.n_drafted - a.stats.n_accepted;
        sum.n_hits += a.stats.n_hits;
        sum.n_side += a.stats.n_side;
        sum.n_beside += a.stats.n_drafted - a.stats.n_path;
        sum.n_ngram_accepted += a.stats.n_ngram_accepted;
        sum.n_ngram_rejected += a.stats.n_ngram - a.stats.n_ngram_accepted;
        sum.n_shifts += a.stats.n_shifts;
        sum.n_after_shifts += a.stats.n_shifts > 0 ? a.stats.n_accepted : 0;
        sum.n_shaped += q.plan.tree.empty() ? 0 : a.stats.n_verifications;
    }
    sum.n_skipping += int(p.draft.n_skipping.load());
}

} // namespace

TEST(random_schedules) {
    const int n = check::n_cases(check::by_scale(1600, 4000));
    total     sum;
    for (uint64_t seed = 0; sum.n_requests < n; ++seed) {
        one_pipeline(seed, sum);
        if (check::n_failed.load() > 10) {
            return;
        }
    }
    // The mix is one: every kind of thing happened often.
    for (const int x :
         {sum.n_cancelled, sum.n_accepted, sum.n_rejected, sum.n_hits, sum.n_side, sum.n_beside, sum.n_ngram_accepted,
          sum.n_ngram_rejected, sum.n_shaped, sum.n_skipping, sum.n_shifts, sum.n_after_shifts}) {
        CHECK(x > n / 16, std::to_string(x));
    }
}
