#include "top_logits.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "base/compiler.h"
#include "base/lanes.h"

namespace duo {

namespace {

constexpr int32_t n_block        = 64; // logits: large enough to skip many cache lines, small enough to search fast
constexpr float   minus_infinity = -std::numeric_limits<float>::infinity();

// NaN fails every comparison, so that it never replaces `a`.
inline float larger(float a, float b) {
    return b > a ? b : a;
}

float largest_of(const float * x, int32_t n) {
    float max = minus_infinity;
    for (int32_t i = 0; i < n; ++i) {
        max = larger(max, x[i]);
    }
    return max;
}

// The largest value of each whole block. 4 lanes are enough, as memory is slower.
void find_maxima(const float * x, int32_t n_blocks, float * out) {
    using f = lanes<4>::f;
    for (int32_t b = 0; b < n_blocks; ++b, x += n_block) {
        f m[4];
        std::fill(m, m + 4, f{} + minus_infinity);
        for (int i = 0; i < n_block; i += 16) {
            for (int j = 0; j < 4; ++j) { // four chains, so that none waits for its last result
                f v;
                std::memcpy(&v, x + i + 4 * j, sizeof v);
                m[j] = DUO_PICK_LARGER(m[j], v);
            }
        }
        m[0]   = DUO_PICK_LARGER(m[0], m[1]);
        m[2]   = DUO_PICK_LARGER(m[2], m[3]);
        m[0]   = DUO_PICK_LARGER(m[0], m[2]);
        out[b] = larger(larger(m[0][0], m[0][1]), larger(m[0][2], m[0][3]));
    }
}

// Sum of exp(x - max) over one whole block, relative error below 1e-6. W lanes at a time, but added up as if 8, and
// without fused multiply-adds: the same bits at any W.
template <int W> DUO_INLINE float block_exp(const float * x, float max) {
    using f                    = typename lanes<W>::f;
    using u                    = typename lanes<W>::u;
    constexpr float whole      = 12582912.0f; // 1.5 * 2^23: adding it leaves a whole number in the low bits
    const f         least      = f{} - 80.0f; // exp of it is nothing beside 1 and no denormal; NaN becomes it too
    f               sum[8 / W] = {};
    for (int i = 0; i < n_block; i += 8) {
        for (int j = 0; j < 8 / W; ++j) {
            f y;
            std::memcpy(&y, x + i + W * j, sizeof y);
            y         = y - max;
            y         = DUO_PICK_LARGER(least, y);
            const f t = y * 1.44269504f + whole; // y = n ln 2 + r, |r| <= ln(2) / 2; ln 2 in two parts
            const f n = t - whole;
            const f r = y - n * 0.693359375f - n * -2.12194440e-4f;
            // 1 + r + r^2 q(r), q minimax (1.1e-7); as a tree, for short chains.
            const f rr = r * r;
            const f q  = (r * 8.3124572e-3f + 4.1890327e-2f) * rr + (r * 1.6667116e-1f + 4.9999231e-1f);
            const f p  = q * rr + (r + 1.0f);
            sum[j] += DUO_AS(f, DUO_AS(u, p) + (DUO_AS(u, t) << 23)); // times 2^n
        }
    }
    float part[8];
    std::memcpy(part, sum, sizeof part);
    return ((part[0] + part[4]) + (part[1] + part[5])) + ((part[2] + part[6]) + (part[3] + part[7]));
}

template <int W>
DUO_INLINE double sum_blocks(const float * x, const std::vector<float> & maxima, int32_t n_blocks, float max,
                             float floor) {
    double sum = 0.0;
    for (int32_t b = 0; b < n_blocks; ++b) {
        if (maxima[size_t(b)] >= floor) {
            sum += double(block_exp<W>(x + size_t(b) * n_block, max));
        }
    }
    return sum;
}

double sum_4(const float * x, const std::vector<float> & maxima, int32_t n_blocks, float max, float floor) {
    return sum_blocks<4>(x, maxima, n_blocks, max, floor);
}

// This branches at run time instead of using target_clones, whose resolvers run while the program is loaded, before
// ThreadSanitizer is ready, and not every libc has them. "fma" is left out, as it would change bits.
#if defined(DUO_IS_X86_64)
DUO_TARGET("avx2")
double sum_8(const float * x, const std::vector<float> & maxima, int32_t n_blocks, float max, float floor) {
    return sum_blocks<8>(x, maxima, n_blocks, max, floor);
}

bool has_8() {
    static const bool yes = DUO_CPU_SUPPORTS("avx2");
    return yes;
}
#else
constexpr auto sum_8 = sum_4;

bool has_8() {
    return false;
}
#endif

// Sums over the distances from the maximum.
struct moments {
    double n       = 0.0;
    double sum     = 0.0;
    double squares = 0.0;
};

// For a whole block: 8 chains of additions, in an order that does not depend on the processor.
moments moments_of_all(const float * x, float max) {
    constexpr int n_lanes          = 8;
    double        sum[n_lanes]     = {};
    double        squares[n_lanes] = {};
    for (int i = 0; i < n_block; i += n_lanes) {
        for (int lane = 0; lane < n_lanes; ++lane) {
            const double d = double(x[i + lane]) - double(max);
            sum[lane] += d;
            squares[lane] += d * d;
        }
    }
    return {.n       = n_block,
            .sum     = std::accumulate(sum, sum + n_lanes, 0.0),
            .squares = std::accumulate(squares, squares + n_lanes, 0.0)};
}

moments moments_of_finite(const float * x, int32_t n, float max) {
    moments m;
    for (int32_t i = 0; i < n; ++i) {
        if (x[i] > minus_infinity) {
            const double d = double(x[i]) - double(max);
            m.n += 1.0;
            m.sum += d;
            m.squares += d * d;
        }
    }
    return m;
}

// Floats as integers in the same order; its own inverse.
int32_t in_order(int32_t bits) {
    return bits < 0 ? bits ^ 0x7fffffff : bits;
}

} // namespace

void logit_row::read(const float * x, int32_t n) {
    x_                     = x;
    n_                     = n;
    const int32_t n_blocks = n / n_block;
    const int32_t n_rest   = n % n_block;
    maxima_.resize(size_t(n_blocks + (n_rest > 0 ? 1 : 0)));
    find_maxima(x, n_blocks, maxima_.data());
    if (n_rest > 0) {
        maxima_.back() = largest_of(x + n - n_rest, n_rest);
    }
    max_ = largest_of(maxima_.data(), int32_t(maxima_.size()));
}

token_id logit_row::argmax() const {
    // The maximum of a block of nothing but NaN is -inf too, so the search may go on beyond the first such block.
    for (auto b = std::find(maxima_.begin(), maxima_.end(), max_); b != maxima_.end();
         b      = std::find(b + 1, maxima_.end(), max_)) {
        const float * first = x_ + (b - maxima_.begin()) * n_block;
        const float * last  = std::min(first + n_block, x_ + n_);
        if (const float * best = std::find(first, last, max_); best != last) {
            return token_id(best - x_);
        }
    }
    return no_token;
}

// A number that at least k logits reach, and not many more: about the k-th largest of the blocks' maxima, by bisection,
// as counting needs no branches. In the order of the bits, where one huge logit costs no more steps than another.
float logit_row::floor_of(size_t k) const {
    float lowest = max_;
    for (const float m : maxima_) {
        lowest = m > minus_infinity && m < lowest ? m : lowest;
    }
    const auto n_reach = [this](float floor) {
        int32_t n = 0;
        for (const float m : maxima_) {
            n += m >= floor ? 1 : 0;
        }
        return size_t(n);
    };
    if (n_reach(lowest) < k) {
        return minus_infinity;
    }
    int64_t low  = in_order(std::bit_cast<int32_t>(lowest));
    int64_t high = int64_t(in_order(std::bit_cast<int32_t>(max_))) + 1;
    while (high - low > 1) {
        const int64_t middle  = (low + high) >> 1;
        const size_t  n       = n_reach(std::bit_cast<float>(in_order(int32_t(middle))));
        (n >= k ? low : high) = middle;
        if (n >= k && n <= k + k / 4) {
            break;
        }
    }
    return std::bit_cast<float>(in_order(int32_t(low)));
}

void logit_row::collect(float floor, std::vector<top_logit> & out) const {
    for (size_t b = 0; b < maxima_.size(); ++b) {
        if (!(maxima_[b] >= floor)) {
            continue;
        }
        const auto    first = token_id(b) * n_block;
        const int32_t last  = std::min(first + n_block, n_);
        for (token_id t = first; t < last; ++t) {
            if (x_[t] >= floor) {
                out.push_back({t, x_[t]});
            }
        }
    }
}

void logit_row::within(const kept_bound & bound, std::vector<top_logit> & out) {
    out.clear();
    const size_t k = bound.n_all();
    if (k <= 1) {
        if (const token_id best = k == 1 ? argmax() : no_token; best != no_token) {
            out.push_back({best, x_[best]});
        }
        return;
    }
    float floor = floor_of(k);
    if (bound.floor > floor && k > bound.n_least) {
        floor = std::min(bound.floor, floor_of(bound.n_least));
    }
    collect(floor, out);
    if (bound.in_order) {
        sort_.keep_best(out, k);
    }
}

double logit_row::deviation() const {
    if (!std::isfinite(max_)) {
        return std::numeric_limits<double>::infinity();
    }
    moments all;
    for (int32_t i = 0; i < n_; i += n_block) {
        const int32_t n = std::min(n_block, n_ - i);
        moments       block;
        if (n == n_block) {
            block = moments_of_all(x_ + i, max_);
        }
        if (n < n_block || !std::isfinite(block.sum)) { // it contains -inf or NaN
            block = moments_of_finite(x_ + i, n, max_);
        }
        all.n += block.n;
        all.sum += block.sum;
        all.squares += block.squares;
    }
    const double mean = all.sum / all.n;
    return std::sqrt(std::max(0.0, all.squares / all.n - mean * mean));
}

double logit_row::log_sum_exp() const {
    if (!std::isfinite(max_)) {
        return double(max_);
    }
    // Skipped logits, at most n of them, are below max - log(n) - 13: together less than exp(-13) = 2.3e-6 of the sum.
    const float   floor    = max_ - 13.0f - std::log(float(n_));
    const int32_t n_blocks = n_ / n_block;
    double        sum      = (has_8() ? sum_8 : sum_4)(x_, maxima_, n_blocks, max_, floor);
    for (int32_t i = n_blocks * n_block; i < n_; ++i) {
        if (x_[i] >= floor) {
            sum += std::exp(double(x_[i]) - double(max_));
        }
    }
    return double(max_) + std::log(sum);
}

} // namespace duo
