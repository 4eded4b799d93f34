// Each filter keeps what its definition says, on distributions of all shapes.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "check.h"
#include "model/filters.h"
#include "random.h"

using namespace duo;
using duo_test::dice;

namespace {

struct choice {
    int   id    = 0;
    float logit = 0.0f;
};

using choices = std::vector<choice>;

choices random_choices(dice & d) {
    choices     all(1 + d.below(50));
    const float width = 0.01f * float(1 + d.below(1000));
    for (choice & c : all) {
        c.logit = width * float(d.below(1000)) / 1000.0f - (d.chance(0.05) ? 1e9f : 0.0f);
    }
    std::stable_sort(all.begin(), all.end(), [](const choice & a, const choice & b) { return a.logit > b.logit; });
    for (size_t i = 0; i < all.size(); ++i) {
        all[i].id = int(i);
    }
    return all;
}

std::vector<double> softmax(const choices & all) {
    std::vector<double> p;
    double              sum = 0.0;
    for (const choice & c : all) {
        p.push_back(std::exp(double(c.logit) - double(all[0].logit)));
        sum += p.back();
    }
    for (double & x : p) {
        x /= sum;
    }
    return p;
}

double entropy(const std::vector<double> & p) {
    double h = 0.0;
    for (const double x : p) {
        h -= x > 0.0 ? x * std::log(x) : 0.0;
    }
    return h;
}

bool sorted(const choices & all) {
    return std::is_sorted(all.begin(), all.end(), [](const choice & a, const choice & b) { return a.id < b.id; });
}

} // namespace

TEST(within_reach_of_the_best) {
    dice d(1);
    for (int i = 0; i < 2000; ++i) {
        const choices all   = random_choices(d);
        const double  reach = 0.01 * d.below(500);
        choices       kept  = all;
        candidate_filters::keep_within(kept, reach);
        const auto n =
            std::count_if(all.begin(), all.end(), [&](const choice & c) { return c.logit >= all[0].logit - reach; });
        CHECK_EQ(ptrdiff_t(kept.size()), n);
        CHECK_EQ(kept[0].id, 0);
    }
    choices all = random_choices(d);
    candidate_filters::keep_within(all, std::numeric_limits<double>::infinity());
    CHECK(!all.empty());
}

TEST(typical_tokens_are_those_nearest_to_the_entropy) {
    dice              d(2);
    candidate_filters f;
    int               n_without_best = 0;
    for (int i = 0; i < 5000; ++i) {
        const choices all  = random_choices(d);
        const auto    q    = float(d.below(100)) * 0.01f;
        choices       kept = all;
        f.keep_typical(kept, q);
        const std::vector<double> p = softmax(all);
        const double              h = entropy(p);
        REQUIRE(!kept.empty());
        CHECK(sorted(kept));
        const auto gap = [&](int id) { return std::abs(-std::log(p[size_t(id)]) - h); };
        double     sum = 0.0, widest = 0.0, p_widest = 0.0;
        for (const choice & c : kept) {
            sum += p[size_t(c.id)];
            if (gap(c.id) >= widest) {
                widest   = gap(c.id);
                p_widest = p[size_t(c.id)];
            }
        }
        CHECK(sum > double(q) || kept.size() == all.size());
        CHECK(sum - p_widest <= double(q) + 1e-12, "one token fewer is not enough");
        for (const choice & c : all) {
            const bool is_kept = std::any_of(kept.begin(), kept.end(), [&](const choice & k) { return k.id == c.id; });
            CHECK(is_kept || gap(c.id) >= widest);
        }
        n_without_best += kept[0].id != 0 ? 1 : 0;
    }
    CHECK(n_without_best > 50); // what no other filter does
}

TEST(of_the_top_choices_the_last_one_stays) {
    dice              d(3);
    candidate_filters f;
    int               n_removed = 0;
    for (int i = 0; i < 5000; ++i) {
        const choices all       = random_choices(d);
        const auto    threshold = float(d.below(50)) * 0.01f;
        choices       kept      = all;
        f.exclude_top_choices(kept, threshold);
        const std::vector<double> p = softmax(all);
        const auto n_top = std::count_if(p.begin(), p.end(), [&](double x) { return x >= double(threshold); });
        CHECK_EQ(kept.size(), all.size() - size_t(std::max<ptrdiff_t>(0, n_top - 1)));
        CHECK_EQ(kept.back().id, all.back().id);
        n_removed += int(all.size() - kept.size());
    }
    CHECK(n_removed > 1000);
}

TEST(the_temperature_follows_the_entropy) {
    candidate_filters f;
    sampling_params   s;
    s.temp           = 0.8f;
    s.dynatemp_range = 0.5f;
    const choices even(10, {0, 1.0f});
    CHECK(std::abs(f.temperature(even, s) - 1.3f) < 1e-6f);
    const choices sure{{0, 100.0f}, {1, -100.0f}};
    CHECK(std::abs(f.temperature(sure, s) - 0.3f) < 1e-6f);
    const choices some{{0, 1.0f}, {1, 0.0f}, {2, -2.0f}};
    const double  h = entropy(softmax(some)) / std::log(3.0);
    for (const float exponent : {0.0f, 0.5f, 1.0f, 3.0f}) {
        s.dynatemp_exponent = exponent;
        CHECK(std::abs(double(f.temperature(some, s)) - (0.3 + std::pow(h, double(exponent)))) < 1e-6);
    }
    s.dynatemp_exponent = 1.0f;
    s.dynatemp_range    = 2.0f; // the lowest temperature is 0, which nothing can be divided by
    CHECK_EQ(f.temperature(sure, s), 1e-6f);
    CHECK_EQ(f.temperature(choices(1), s), 1e-6f);
    s.dynatemp_range = 0.0f;
    CHECK_EQ(f.temperature(some, s), 0.8f);
    s.temp           = 0.0f;
    s.dynatemp_range = 1.0f;
    CHECK(!s.greedy());
}

TEST(xtc_decides_by_seed_and_position_alone) {
    sampling_params s;
    s.xtc_probability = 0.3f;
    int n             = 0;
    for (uint64_t pos = 0; pos < 20000; ++pos) {
        s.seed         = pos % 7;
        s.temp         = float(pos % 3);
        const bool now = xtc_applies(s, pos);
        s.top_k        = int32_t(pos % 11);
        CHECK_EQ(xtc_applies(s, pos), now);
        n += now ? 1 : 0;
    }
    CHECK(std::abs(n - 6000) < 5 * 65); // five standard deviations
    s.xtc_probability = 1.0f;
    CHECK(xtc_applies(s, 5));
    s.xtc_threshold = 0.51f;
    CHECK(!xtc_applies(s, 5));
    s.xtc_threshold   = 0.1f;
    s.xtc_probability = 0.0f;
    CHECK(!xtc_applies(s, 5));
}
