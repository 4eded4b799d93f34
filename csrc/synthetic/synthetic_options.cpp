#include "synthetic_options.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "base/error.h"

namespace duo {

namespace {

constexpr uint64_t for_runs = 0x94f2c1a7e0b53d89ull; // different from the hash that chooses the tokens

void require(bool ok, const std::string & sentence) {
    if (!ok) {
        throw error(error_kind::bad_value, "synthetic models: " + sentence);
    }
}

bool is_share(double x) {
    return x >= 0.0 && x <= 1.0; // false for NaN
}

} // namespace

double agreement::mean() const {
    return std::accumulate(a.begin(), a.end(), 0.0) / double(a.size());
}

double agreement::at(int32_t pos, uint64_t seed) const {
    const int32_t n      = n_stretch > 0 ? n_stretch : 32;
    const double  a_here = a[size_t(pos / n) % a.size()];
    if (burst <= 0.0) {
        return a_here;
    }
    const uint64_t hash = synthetic_hash(synthetic_hash(seed ^ for_runs) ^ uint64_t(pos / n_run));
    return synthetic_uniform(hash) < a_here ? a_here + burst * (1.0 - a_here) : a_here * (1.0 - burst);
}

double agreement::chance(int32_t rank, double a_here) const {
    return rank == 0 ? a_here : (1.0 - a_here) * std::pow(1.0 - b, rank - 1) * b;
}

int32_t agreement::rank_of(double uniform, double a_here) const {
    for (int32_t rank = 0; rank < n_ranks; ++rank) {
        uniform -= chance(rank, a_here);
        if (uniform < 0.0) {
            return rank;
        }
    }
    return n_ranks;
}

int64_t pass_cost::us(int32_t n_rows) const {
    if (v.empty() || n_rows <= v.front().first || v.size() == 1) {
        return std::llround(pass_us * (v.empty() ? 1.0 : v.front().second));
    }
    size_t i = 1; // end of the piece that n_rows is in, or beyond
    while (i + 1 < v.size() && v[i].first < n_rows) {
        ++i;
    }
    const auto & [n0, v0] = v[i - 1];
    const auto & [n1, v1] = v[i];
    return std::llround(pass_us * std::max(0.0, v0 + (v1 - v0) * double(n_rows - n0) / double(n1 - n0)));
}

void synthetic_options::check() const {
    require(n_vocab >= 4 * agreement::n_ranks, "n_vocab is " + std::to_string(n_vocab) + "; make it at least 32");
    require(n_ctx >= 1 && n_ctx <= (1 << 28), "n_ctx is " + std::to_string(n_ctx) + "; make it 1 to 2^28");
    require(n_texts >= 1 && n_texts <= 64, "n_parallel is " + std::to_string(n_texts) + "; make it 1 to 64");
    require(!agree.a.empty() && std::all_of(agree.a.begin(), agree.a.end(), is_share),
            "a must be one or more values from 0 to 1");
    require(is_share(agree.b), "b must be from 0 to 1");
    require(is_share(agree.burst), "burst must be from 0 to 1");
    require(is_share(agree.says), "says must be from 0 to 1");
    require(agree.n_stretch >= 0, "n_stretch must not be negative");
    require(pass_us >= 0.0 && pass_us <= 1e9, "pass_us must be from 0 to 1e9");
    require(c >= 0.0 && c <= 1000.0, "c must be from 0 to 1000");
    require(branch_cost >= 0.0 && branch_cost <= 1000.0, "branch_cost must be from 0 to 1000");
    int32_t n_before = 0;
    for (const auto & [n, factor] : v) {
        require(n > n_before, "the rows of v must ascend from 1");
        require(factor > 0.0 && factor <= 1e6, "v must be greater than 0 and at most a million");
        n_before = n;
    }
}

} // namespace duo
