// The shared noise: uniform, independent in token, position and seed; Gumbel-max draws from the softmax.
#include <array>
#include <cmath>

#include "check.h"
#include "random.h"
#include "text/sampling.h"

using namespace duo;

namespace {

// Pearson's statistic of counts that should all be equal; about normal with mean k - 1 and variance 2 (k - 1).
template <size_t K> double deviation(const std::array<int, K> & counts) {
    double n = 0.0;
    for (const int c : counts) {
        n += c;
    }
    const double e    = n / K;
    double       chi2 = 0.0;
    for (const int c : counts) {
        chi2 += (c - e) * (c - e) / e;
    }
    return (chi2 - (K - 1)) / std::sqrt(2.0 * (K - 1));
}

constexpr double limit = 5.0; // fixed seeds: passes or fails for ever; a broken generator is off by hundreds

// Which of the three keys the i-th draw moves along.
template <typename Draw> void check_line(Draw draw, const char * name) {
    std::array<int, 256>  bins{};
    std::array<int, 256>  low{};
    std::array<int, 1024> pairs{};
    double                before = 0.5;
    double                corr   = 0.0;
    const int             n      = 200000;
    for (int i = 0; i < n; ++i) {
        const double u = draw(uint64_t(i));
        CHECK(u > 0.0 && u < 1.0);
        ++bins[size_t(u * 256)];
        ++low[size_t(std::fmod(u * 0x1.0p30, 1.0) * 256)]; // bits further down
        ++pairs[size_t(u * 32) * 32 + size_t(before * 32)];
        corr += (u - 0.5) * (before - 0.5) * 12.0;
        before = u;
    }
    CHECK(std::abs(deviation(bins)) < limit, name);
    CHECK(std::abs(deviation(low)) < limit, name);
    CHECK(std::abs(deviation(pairs)) < limit, name);
    CHECK(std::abs(corr / std::sqrt(double(n))) < limit, name);
}

} // namespace

TEST(noise_along_each_key) {
    check_line([](uint64_t i) { return noise_uniform(1, 7, i); }, "tokens");
    check_line([](uint64_t i) { return noise_uniform(1, i, 7); }, "positions");
    check_line([](uint64_t i) { return noise_uniform(i, 1, 7); }, "seeds");
    check_line([](uint64_t i) { return noise_uniform(0, i, i); }, "diagonal");
    check_line([](uint64_t i) { return noise_uniform(i, i, 0); }, "seed and position");
    check_line([](uint64_t i) { return noise_uniform(i << 32, 0, i); }, "seed in the upper half");
}

TEST(noise_of_neighbours_is_independent) {
    // The pair of draws at two keys that differ in one number only.
    struct step {
        uint64_t     seed, pos, token;
        const char * name;
    };
    for (const step & s :
         {step{1, 0, 0, "seed"}, step{0, 1, 0, "position"}, step{0, 0, 1, "token"}, step{1, 1, 0, "seed, position"},
          step{0, 1, 1, "position, token"}, step{0, 1, uint64_t(-1), "skew"}}) {
        std::array<int, 256> pairs{};
        for (uint64_t i = 0; i < 100000; ++i) {
            const uint64_t seed = i % 10, pos = i / 10 % 100, token = 1 + i / 1000;
            const double   a = noise_uniform(seed, pos, token);
            const double   b = noise_uniform(seed + s.seed, pos + s.pos, token + s.token);
            ++pairs[size_t(a * 16) * 16 + size_t(b * 16)];
        }
        CHECK(std::abs(deviation(pairs)) < limit, s.name);
    }
}

TEST(noise_is_the_same_everywhere) {
    // Both sides of a network must agree: these bits are part of the protocol.
    CHECK_EQ(noise_uniform(0, 0, 0), noise_uniform(0, 0, 0));
    CHECK(noise_uniform(0, 0, 0) != noise_uniform(0, 0, 1));
    CHECK(noise_uniform(0, 0, 0) != noise_uniform(0, 1, 0));
    CHECK(noise_uniform(0, 0, 0) != noise_uniform(1, 0, 0));
}

TEST(gumbel_has_its_moments) {
    const int n   = 400000;
    double    sum = 0.0;
    double    sq  = 0.0;
    for (int i = 0; i < n; ++i) {
        const double g = gumbel_noise(42, uint64_t(i / 1000), i % 1000);
        CHECK(std::isfinite(g));
        sum += g;
        sq += g * g;
    }
    const double mean = sum / n;
    CHECK(std::abs(mean - 0.5772157) < 0.01);
    CHECK(std::abs(sq / n - mean * mean - 1.6449341) < 0.04);
}

TEST(gumbel_max_draws_from_the_softmax) {
    const std::array<double, 5> p{0.45, 0.3, 0.15, 0.08, 0.02};
    const int                   n = 200000;
    std::array<int, 5>          count{};
    for (int pos = 0; pos < n; ++pos) {
        int   best = 0;
        float top  = -1e30f;
        for (int t = 0; t < 5; ++t) {
            const float x = float(std::log(p[size_t(t)])) + gumbel_noise(3, uint64_t(pos), t * 1000);
            if (x > top) {
                top  = x;
                best = t;
            }
        }
        ++count[size_t(best)];
    }
    double chi2 = 0.0;
    for (size_t t = 0; t < 5; ++t) {
        chi2 += std::pow(count[t] - n * p[t], 2) / (n * p[t]);
    }
    CHECK(chi2 < 25.0, std::to_string(chi2)); // 4 degrees of freedom: 5e-5
}

TEST(shared_noise_makes_two_models_agree) {
    // Daliri et al.: P(same token) >= (1 - TV) / (1 + TV).
    const std::array<double, 4> p{0.5, 0.3, 0.15, 0.05};
    const std::array<double, 4> q{0.4, 0.3, 0.1, 0.2};
    const double                tv     = 0.15;
    const int                   n      = 100000;
    int                         n_same = 0;
    const auto                  draw   = [](const std::array<double, 4> & dist, int pos) {
        int   best = 0;
        float top  = -1e30f;
        for (int t = 0; t < 4; ++t) {
            const float x = float(std::log(dist[size_t(t)])) + gumbel_noise(11, uint64_t(pos), t);
            if (x > top) {
                top  = x;
                best = t;
            }
        }
        return best;
    };
    for (int pos = 0; pos < n; ++pos) {
        n_same += draw(p, pos) == draw(q, pos) ? 1 : 0;
    }
    CHECK(double(n_same) / n > (1 - tv) / (1 + tv) - 0.01);
    CHECK(double(n_same) / n <= 1 - tv + 0.01);
}
