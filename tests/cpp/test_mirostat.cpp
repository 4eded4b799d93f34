// Mirostat: what is dropped, and how the limit follows what was chosen.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "check.h"
#include "random.h"
#include "text/mirostat.h"

using namespace duo;
using namespace duo_test;

namespace {

// Logits of Zipf's law: the chance of rank r is proportional to r^-exponent.
std::vector<float> zipf(size_t n, double exponent) {
    std::vector<float> row(n);
    for (size_t i = 0; i < n; ++i) {
        row[i] = float(-exponent * std::log(double(i + 1)));
    }
    return row;
}

size_t n_kept(const std::vector<float> & row) {
    return size_t(std::count_if(row.begin(), row.end(), [](float x) { return std::isfinite(x); }));
}

// Draws from what is left, at temperature 1.
token_id drawn(const std::vector<float> & row, dice & d) {
    double sum = 0.0;
    for (const float x : row) {
        sum += std::exp(double(x));
    }
    double at = double(d.next() >> 11) * 0x1.0p-53 * sum;
    for (size_t i = 0; i < row.size(); ++i) {
        at -= std::exp(double(row[i]));
        if (at < 0.0 && std::isfinite(row[i])) {
            return token_id(i);
        }
    }
    return 0;
}

} // namespace

TEST(version_2_drops_what_is_more_surprising_than_the_limit) {
    mirostat           m({.version = 2, .tau = 1.6f, .temp = 1.0f}); // a limit of 3.2 bits: chances from 0.109 on
    std::vector<float> row{std::log(0.5f), std::log(0.25f), std::log(0.125f), std::log(0.0625f), std::log(0.0625f)};
    const auto         before = row;
    CHECK(m.on_row(std::vector<token_id>{1}, row));
    CHECK_EQ(n_kept(row), size_t(3));
    CHECK(std::equal(row.begin(), row.begin() + 3, before.begin()));
}

TEST(the_limit_follows_the_surprise_of_what_was_chosen) {
    mirostat           m({.version = 2, .tau = 1.6f, .eta = 0.5f, .temp = 1.0f});
    const auto         chances = {0.5f, 0.25f, 0.125f, 0.0625f, 0.0625f};
    std::vector<float> row;
    std::transform(chances.begin(), chances.end(), std::back_inserter(row), [](float p) { return std::log(p); });
    auto again = row;
    m.on_row(std::vector<token_id>{1}, row);
    m.on_row(std::vector<token_id>{1, 0}, again); // token 0 had 0.5 of the 0.875 that were left
    CHECK(std::abs(m.limit() - (3.2 - 0.5 * (std::log2(0.875 / 0.5) - 1.6))) < 1e-5);
    const double before = m.limit();
    row                 = std::vector<float>(5, 0.0f);
    m.on_row(std::vector<token_id>{1, 0, 4}, row); // token 4 had been dropped: somebody else has chosen it
    CHECK_EQ(m.limit(), before);
}

TEST(something_is_always_left) {
    for (const int32_t version : {1, 2}) {
        mirostat           m({.version = version, .tau = 0.0f, .eta = 1.0f, .temp = 0.01f});
        std::vector<float> row(50, 1.0f);
        CHECK(m.on_row(std::vector<token_id>{1}, row) && n_kept(row) >= 1);
        row[7] = 2.0f;
        CHECK(m.on_row(std::vector<token_id>{1, 3}, row) && std::isfinite(row[7]));
        std::vector<float> one(1, 0.5f);
        mirostat           alone({.version = version});
        CHECK(alone.on_row(std::vector<token_id>{0}, one) && n_kept(one) == 1);
    }
}

TEST(a_bias_counts_before_the_row_has_it) {
    mirostat           m({.version = 2, .tau = 0.5f, .temp = 1.0f, .logit_bias = {{2, 20.0f}}});
    std::vector<float> row{0.0f, 0.0f, 0.0f, 0.0f};
    m.on_row(std::vector<token_id>{1}, row);
    CHECK(n_kept(row) == 1 && std::isfinite(row[2]));
}

// The mean surprise of a long text is near the target, whatever the row is like.
TEST(the_mean_surprise_is_the_one_that_is_wanted) {
    for (const int32_t version : {1, 2}) {
        for (const float tau : {2.0f, 4.0f}) {
            mirostat              m({.version = version, .tau = tau, .eta = 0.1f, .temp = 1.0f});
            dice                  d(7);
            std::vector<token_id> text{0};
            double                sum = 0.0;
            const int             n   = 3000;
            for (int i = 0; i < n; ++i) {
                std::vector<float> row = zipf(2000, 1.1);
                m.on_row(text, row);
                double all = 0.0;
                for (const float x : row) {
                    all += std::exp(double(x));
                }
                text.push_back(drawn(row, d));
                sum -= std::log2(std::exp(double(row[size_t(text.back())])) / all);
            }
            CHECK(std::abs(sum / n - double(tau)) < 0.15, std::to_string(sum / n));
        }
    }
}

TEST(a_row_that_is_seen_again_counts_once) {
    mirostat           m({.version = 2, .tau = 1.0f, .eta = 0.5f, .temp = 1.0f});
    std::vector<float> row{2.0f, 1.0f, 0.0f};
    m.on_row(std::vector<token_id>{1}, row);
    const double before = m.limit();
    CHECK(m.refused());
    row = {-INFINITY, 1.0f, 0.0f};
    m.reconsider(std::vector<token_id>{1}, row);
    CHECK_EQ(m.limit(), before);
    CHECK(std::isinf(row[0]) && std::isfinite(row[1]));
    std::vector<float> none(3, -INFINITY);
    m.reconsider(std::vector<token_id>{1}, none);
    CHECK(n_kept(none) == 0);
}
