// What the filters leave of what is within the bound is what they leave of the whole row, sorted; and little is sorted.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "check.h"
#include "model/filters.h"
#include "model/top_logits.h"
#include "random.h"

using namespace duo;
using duo_test::dice;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr int   n_large  = 151936;

double uniform(dice & d) {
    return (double(d.next() >> 11) + 0.5) * 0x1.0p-53;
}

// steepness: how far the logits lie apart. Some are equal, some forbidden.
std::vector<float> random_row(dice & d, size_t n, double steepness) {
    const bool         coarse   = d.chance(0.3);
    const double       n_banned = d.chance(0.3) ? uniform(d) : 0.0;
    std::vector<float> x(n);
    for (float & logit : x) {
        const double bell = std::sqrt(-2.0 * std::log(uniform(d))) * std::cos(6.283185307 * uniform(d));
        logit             = float(steepness * (coarse ? std::round(2.0 * bell) / 2.0 : bell));
        logit             = d.chance(n_banned) ? -infinity : logit;
    }
    for (int i = d.between(0, 20); i > 0; --i) {
        x[d.below(uint32_t(n))] += float(steepness * double(d.between(1, 6)));
    }
    x[d.below(uint32_t(n))] = 0.0f; // not all are forbidden
    return x;
}

sampling_params random_sampling(dice & d, size_t n) {
    const float     top_ps[] = {0.0f, 0.1f, 0.5f, 0.9f, 0.95f, 0.999f, 0.9999999f};
    const float     min_ps[] = {1e-9f, 1e-3f, 0.05f, 0.5f, 1.0f};
    const int32_t   top_ks[] = {1, 2, 40, 64, 65, 3000};
    sampling_params s{.temp = 1.0f, .top_k = -1, .top_p = 1.0f, .min_p = 0.0f};
    s.top_k       = d.chance(0.3) ? std::min(top_ks[d.below(6)], int32_t(n)) : d.chance(0.5) ? 0 : -1;
    s.top_p       = d.chance(0.5) ? top_ps[d.below(7)] : 1.0f;
    s.min_p       = d.chance(0.5) ? min_ps[d.below(5)] : 0.0f;
    s.typical_p   = d.chance(0.2) ? 0.8f : 1.0f;
    s.top_n_sigma = d.chance(0.3) ? float(uniform(d)) * 5.0f : -1.0f;
    return s;
}

// As libllama filters a sorted list, in floats.
size_t n_left_by_top_p(const std::vector<top_logit> & all, float top_p) {
    std::vector<float> p;
    float              sum = 0.0f;
    for (const top_logit & t : all) {
        p.push_back(std::exp(t.logit - all.front().logit));
        sum += p.back();
    }
    float so_far = 0.0f;
    for (size_t i = 0; i < p.size(); ++i) {
        so_far += p[i] / sum;
        if (so_far >= top_p) {
            return i + 1;
        }
    }
    return p.size();
}

size_t n_left_by_min_p(const std::vector<top_logit> & all, float min_p) {
    const float least = all.front().logit + std::log(min_p);
    size_t      n     = 1;
    while (n < all.size() && all[n].logit >= least) {
        ++n;
    }
    return n;
}

// False: the filters dropped nothing after typical-p.
bool filter(std::vector<top_logit> & all, const sampling_params & s, double reach) {
    candidate_filters filters;
    if (s.top_n_sigma > 0.0f) {
        candidate_filters::keep_within(all, reach);
    }
    if (s.typical_p < 1.0f) {
        filters.keep_typical(all, s.typical_p);
    }
    const size_t n = all.size();
    all.resize(s.top_p < 1.0f ? n_left_by_top_p(all, s.top_p) : n);
    all.resize(s.min_p > 0.0f ? n_left_by_min_p(all, s.min_p) : all.size());
    return all.size() < n;
}

struct kept {
    std::vector<top_logit> tokens;
    std::vector<top_logit> raced; // by a draft
    bool                   twice = false;
};

// As sampler.cpp does it.
kept kept_within(logit_row & row, const sampling_params & s, size_t n, double reach, bool races) {
    kept       k;
    kept_bound b = kept_bound::of(s, n, row.max(), reach, false, races);
    b.in_order   = true;
    row.within(b, k.tokens);
    k.raced.assign(k.tokens.begin(), k.tokens.begin() + ptrdiff_t(std::min(k.tokens.size(), kept_bound::n_raced)));
    k.tokens.resize(std::min(k.tokens.size(), b.n_most));
    const auto forbidden = [](const top_logit & t) { return t.logit == -infinity; };
    std::erase_if(k.tokens, forbidden);
    std::erase_if(k.raced, forbidden);
    k.twice = !filter(k.tokens, s, reach) && !b.whole;
    if (k.twice) {
        row.within(b.without_floor(), k.tokens);
        k.tokens.resize(std::min(k.tokens.size(), b.n_most));
        std::erase_if(k.tokens, forbidden);
        filter(k.tokens, s, reach);
    }
    return k;
}

void check_same(const std::vector<top_logit> & got, const std::vector<top_logit> & want, const std::string & note) {
    REQUIRE_EQ(got.size(), want.size(), note);
    for (size_t i = 0; i < got.size(); ++i) {
        REQUIRE_EQ(got[i].token, want[i].token, note);
        REQUIRE_EQ(got[i].logit, want[i].logit, note);
    }
}

// A row of a model that is rather sure, as most rows are.
std::vector<float> usual_row() {
    dice               d(5);
    std::vector<float> x = random_row(d, n_large, 2.5);
    std::replace(x.begin(), x.end(), -infinity, -9.0f);
    for (int i = 0; i < 20; ++i) {
        x[size_t(i) * 7000] = 20.0f - float(i) / 2.0f;
    }
    return x;
}

int64_t n_sorted_with(const sampling_params & s) {
    const std::vector<float> x = usual_row();
    logit_row                row;
    std::vector<top_logit>   found;
    row.read(x.data(), n_large);
    row.within(kept_bound::of(s, n_large, row.max(), 0.0, false, true), found);
    CHECK(found.size() >= kept_bound::n_raced);
    return row.n_sorted();
}

} // namespace

TEST(filters_leave_what_they_leave_of_the_sorted_row) {
    logit_row row, whole;
    int       n_twice = 0, n_shortened = 0;
    for (uint64_t seed = 0; seed < 250; ++seed) {
        dice                     d(seed);
        const size_t             n = d.chance(0.06) ? n_large : size_t(d.between(1, 9000));
        const std::vector<float> x = random_row(d, n, uniform(d) * 6.0);
        const sampling_params    s = random_sampling(d, n);
        row.read(x.data(), int32_t(n));
        whole.read(x.data(), int32_t(n));

        std::vector<top_logit> all(n), best;
        for (size_t i = 0; i < n; ++i) {
            all[i] = {token_id(i), x[i]};
        }
        std::sort(all.begin(), all.end(), better);
        std::erase_if(all, [](const top_logit & t) { return t.logit == -infinity; });
        best.assign(all.begin(), all.begin() + ptrdiff_t(std::min(all.size(), kept_bound::n_raced)));
        all.resize(std::min(all.size(), s.top_k > 0 ? size_t(s.top_k) : n));

        const double reach = s.top_n_sigma > 0.0f ? double(s.top_n_sigma) * row.deviation() : 0.0;
        filter(all, s, reach);
        for (const bool races : {false, true}) {
            const kept k = kept_within(row, s, n, reach, races);
            check_same(k.tokens, all, "seed " + std::to_string(seed));
            if (races) {
                check_same(k.raced, best, "raced, seed " + std::to_string(seed));
            }
            n_twice += k.twice ? 1 : 0;
        }
        n_shortened += all.size() < n / 2 ? 1 : 0;
    }
    CHECK(n_twice > 0 && n_shortened > 60);
}

TEST(the_infinite_logit_of_a_model_that_overflows_is_the_first) {
    std::vector<float> x(100, 1.0f);
    x[70] = infinity;
    logit_row row;
    row.read(x.data(), int32_t(x.size()));
    const sampling_params  off{.temp = 1.0f, .top_k = 0, .top_p = 1.0f, .min_p = 0.0f};
    std::vector<top_logit> found;
    row.within(kept_bound::of(off, x.size(), row.max(), 0.0, false, false), found);
    CHECK_EQ(found.front().token, 70);
}

TEST(little_of_a_long_row_is_sorted) {
    const sampling_params off{.temp = 1.0f, .top_k = 0, .top_p = 1.0f, .min_p = 0.0f};
    sampling_params       s = off;
    CHECK_EQ(n_sorted_with(s), 0);
    s.min_p = 0.01f;
    CHECK(n_sorted_with(s) < 1000);
    s       = off;
    s.top_p = 0.95f;
    CHECK(n_sorted_with(s) < n_large / 8);
    s.min_p = 0.05f;
    CHECK(n_sorted_with(s) < n_large / 8);
    s           = off;
    s.typical_p = 0.9f; // looks at all
    CHECK_EQ(n_sorted_with(s), n_large);
}
