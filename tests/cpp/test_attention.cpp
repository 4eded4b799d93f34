// Attention of csrc/cpu against double precision, and that a row's bits depend on nothing but the row and what it sees.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "check.h"
#include "cpu/attention.h"
#include "cpu/float16.h"
#include "cpu/kernel.h"
#include "cpu/product.h"

using namespace duo::cpu;

namespace {

uint16_t half_of(float f) { // of ordinary numbers, cut
    uint32_t u;
    std::memcpy(&u, &f, 4);
    const auto exponent = int((u >> 23) & 255) - 112;
    return exponent <= 0 ? uint16_t(0) : uint16_t(((u >> 16) & 0x8000) | uint32_t(exponent << 10) | ((u >> 13) & 1023));
}

double number_of(uint16_t half) {
    return double(float_of_half(reinterpret_cast<const uint8_t *>(&half)));
}

constexpr uint16_t unseen = 0xfc00;

// Queries, a cache and what each token sees of it.
struct scene {
    int64_t               n_k, n_v, n_cells, n_tokens, n_heads, n_kv_heads;
    float                 scale = 0.25f, softcap = 0, max_bias = 0;
    std::vector<float>    q;
    std::vector<uint16_t> k, v, mask;
    std::vector<float>    sinks;
    std::vector<int32_t>  texts, order;

    scene(int64_t columns, int64_t n_values, int64_t cells, int64_t tokens, int64_t heads, int64_t kv_heads,
          std::mt19937 & rng)
        : n_k(columns), n_v(n_values), n_cells(cells), n_tokens(tokens), n_heads(heads), n_kv_heads(kv_heads),
          q(size_t(tokens * heads * columns)), k(size_t(cells * kv_heads * columns)),
          v(size_t(cells * kv_heads * n_values)), mask(size_t(tokens * cells)) {
        std::normal_distribution<float> normal;
        std::generate(q.begin(), q.end(), [&] { return normal(rng); });
        std::generate(k.begin(), k.end(), [&] { return half_of(normal(rng)); });
        std::generate(v.begin(), v.end(), [&] { return half_of(normal(rng)); });
        for (size_t t = 0; t < size_t(tokens); ++t) { // with gaps
            for (size_t c = 0; c < size_t(cells); ++c) {
                mask[t * size_t(cells) + c] = c <= size_t(cells - tokens) + t && rng() % 8 != 0 ? 0 : unseen;
            }
        }
    }

    // Of tokens [from, to).
    [[nodiscard]] attention task(std::vector<float> & out, int64_t from, int64_t to) const {
        attention a{};
        a.n_k        = n_k;
        a.n_v        = n_v;
        a.n_cells    = n_cells;
        a.n_tokens   = to - from;
        a.n_heads    = n_heads;
        a.n_kv_heads = n_kv_heads;
        a.q_head     = size_t(n_k) * 4;
        a.q_token    = size_t(n_heads * n_k) * 4;
        a.k_head     = size_t(n_k) * 2;
        a.k_cell     = size_t(n_kv_heads * n_k) * 2;
        a.v_head     = size_t(n_v) * 2;
        a.v_cell     = size_t(n_kv_heads * n_v) * 2;
        a.mask_token = size_t(n_cells) * 2;
        a.q          = reinterpret_cast<const uint8_t *>(q.data()) + size_t(from) * a.q_token;
        a.k          = reinterpret_cast<const uint8_t *>(k.data());
        a.v          = reinterpret_cast<const uint8_t *>(v.data());
        a.mask  = mask.empty() ? nullptr : reinterpret_cast<const uint8_t *>(mask.data()) + size_t(from) * a.mask_token;
        a.sinks = sinks.empty() ? nullptr : sinks.data();
        a.texts = texts.empty() ? nullptr : texts.data() + from;
        a.order = order.empty() ? nullptr : order.data();
        a.out   = out.data() + from * n_heads * n_v;
        a.scale = scale;
        a.softcap  = softcap;
        a.max_bias = max_bias;
        return a;
    }

    // In passes of `width` tokens.
    [[nodiscard]] std::vector<float> run(const kernel_set & kernels, int64_t width, int n_threads) const {
        std::vector<float> out(size_t(n_tokens * n_heads * n_v), 7.0f);
        workspace          memory;
        for (int64_t from = 0; from < n_tokens; from += width) {
            attend(kernels, task(out, from, std::min(from + width, n_tokens)), n_threads, memory);
        }
        return out;
    }

    [[nodiscard]] double slope(int64_t head) const {
        const auto n = int64_t(std::exp2(std::floor(std::log2(double(n_heads)))));
        return max_bias == 0 ? 1
               : head < n    ? std::exp2(-double(max_bias) / double(n) * double(head + 1))
                             : std::exp2(-double(max_bias) / 2 / double(n) * double(2 * (head - n) + 1));
    }

    [[nodiscard]] std::vector<double> exact(int64_t token, int64_t head) const {
        const size_t        kv = size_t(head / (n_heads / n_kv_heads));
        std::vector<double> scores, out(size_t(n_v), 0.0);
        std::vector<size_t> cells;
        double              sum = sinks.empty() ? 0 : std::exp(double(sinks[size_t(head)]));
        for (size_t c = 0; c < size_t(n_cells); ++c) {
            const uint16_t m = mask.empty() ? uint16_t(0) : mask[size_t(token * n_cells) + c];
            double         s = 0;
            for (size_t j = 0; j < size_t(n_k); ++j) {
                s += double(q[size_t((token * n_heads + head) * n_k) + j]) *
                     number_of(k[(c * size_t(n_kv_heads) + kv) * size_t(n_k) + j]);
            }
            s *= double(scale);
            s = softcap == 0 ? s : double(softcap) * std::tanh(s / double(softcap));
            if (m == unseen) {
                continue;
            }
            const double p = std::exp(s + slope(head) * number_of(m));
            sum += p;
            for (size_t j = 0; j < size_t(n_v); ++j) {
                out[j] += p * number_of(v[(c * size_t(n_kv_heads) + kv) * size_t(n_v) + j]);
            }
        }
        for (double & x : out) {
            x = sum == 0 ? 0 : x / sum;
        }
        return out;
    }

    void check_against_exact(const kernel_set & kernels) const {
        const std::vector<float> got = run(kernels, n_tokens, 2);
        for (int64_t token = 0; token < n_tokens; ++token) {
            for (int64_t head = 0; head < n_heads; ++head) {
                const std::vector<double> want = exact(token, head);
                for (size_t j = 0; j < size_t(n_v); ++j) {
                    const double x = double(got[size_t((token * n_heads + head) * n_v) + j]);
                    if (!(std::fabs(x - want[j]) < 2e-5)) {
                        check::fail(__FILE__, __LINE__,
                                    std::string(kernels.name) + " columns " + std::to_string(n_k) + " token " +
                                        std::to_string(token) + " head " + std::to_string(head) + ": " +
                                        std::to_string(x) + " for " + std::to_string(want[j]));
                        return;
                    }
                }
            }
        }
    }
};

} // namespace

TEST(attention_is_that_of_double_precision) {
    std::mt19937 rng(1);
    for (const kernel_set * kernels : kernels_here()) {
        for (const int64_t columns : {16, 32, 48, 64, 80, 128, 192}) {
            for (const int64_t n_cells : {5, 16, 33, 200}) {
                scene s(columns, columns, n_cells, 5, 6, 2, rng);
                s.check_against_exact(*kernels);
            }
        }
        scene(192, 128, 70, 19, 4, 4, rng).check_against_exact(*kernels);
        scene(64, 32, 70, 3, 20, 1, rng).check_against_exact(*kernels);
        scene(32, 32, 70, 3, 40, 40, rng).check_against_exact(*kernels);
    }
}

TEST(attention_knows_sinks_biases_and_caps) {
    std::mt19937 rng(2);
    for (const kernel_set * kernels : kernels_here()) {
        scene s(32, 32, 90, 7, 6, 3, rng);
        s.sinks = {0.5f, -1.0f, 3.0f, 0.0f, 1.0f, -20.0f};
        s.check_against_exact(*kernels);
        s.sinks.clear();
        s.softcap = 2.0f;
        s.check_against_exact(*kernels);
        s.softcap  = 0;
        s.max_bias = 8.0f;
        for (size_t i = 0; i < s.mask.size(); ++i) { // distances, as llama.cpp writes them for ALiBi
            s.mask[i] = s.mask[i] == unseen ? unseen : half_of(-float(i % 90));
        }
        s.check_against_exact(*kernels);
        s.max_bias = 0;
        s.mask.clear(); // everything is seen
        s.check_against_exact(*kernels);
    }
}

TEST(a_rows_attention_has_the_same_bits_at_every_width_and_with_every_team) {
    std::mt19937 rng(3);
    for (const kernel_set * kernels : kernels_here()) {
        struct {
            int64_t heads, kv_heads, tokens;
        } shapes[] = {{6, 1, 70}, {6, 2, 70}, {6, 6, 70}, {40, 40, 7}, {38, 19, 7}}; // more heads than one piece holds
        for (const auto & shape : shapes) {
            scene s(48, 48, 150, shape.tokens, shape.heads, shape.kv_heads, rng);
            for (int64_t h = 0; h < shape.heads; ++h) {
                s.sinks.push_back(float(h % 5) - 2);
            }
            const std::vector<float> alone = s.run(*kernels, 1, 1);
            for (const int64_t width : {2, 3, 5, 16, 64, 70}) {
                for (const int n_threads : {1, 2, 5}) {
                    CHECK(s.run(*kernels, width, n_threads) == alone);
                }
            }
        }
    }
}

TEST(threads_that_share_a_long_context_find_the_bits_of_one_alone) {
    std::mt19937      rng(6);
    constexpr int64_t n_cells = 6200;
    for (const kernel_set * kernels : kernels_here()) {
        struct {
            int64_t heads, kv_heads, n_k, n_v;
        } shapes[] = {{8, 4, 48, 16}, {3, 3, 16, 32}};
        for (const auto & shape : shapes) {
            scene              s(shape.n_k, shape.n_v, n_cells, 3, shape.heads, shape.kv_heads, rng);
            std::vector<float> out(size_t(s.n_tokens * s.n_heads * s.n_v));
            CHECK(attends_together(s.task(out, 0, 3), 3));
            s.check_against_exact(*kernels);
            const auto same_bits = [&] {
                const std::vector<float> alone = s.run(*kernels, 1, 1);
                CHECK(s.run(*kernels, 1, 3) == alone);
                CHECK(s.run(*kernels, 2, 2) == alone);
                CHECK(s.run(*kernels, 3, 3) == alone);
            };
            s.sinks.assign(size_t(shape.heads), 0.5f);
            std::fill_n(s.mask.begin() + n_cells, n_cells, unseen); // the second token sees nothing
            same_bits();
            s.sinks.clear();
            s.order.resize(n_cells);
            std::iota(s.order.rbegin(), s.order.rend(), 0);
            s.softcap  = 2.0f;
            s.max_bias = 8.0f;
            for (size_t c = 0; c < s.mask.size(); ++c) {
                s.mask[c] = s.mask[c] == unseen ? unseen : half_of(-float(c % n_cells));
            }
            same_bits();
            s.mask.clear();
            same_bits();
        }
    }
}

TEST(threads_share_a_context_only_where_it_is_long_and_has_work_for_all) {
    std::mt19937       rng(7);
    constexpr int64_t  n_cells = 6200;
    std::vector<float> out(1 << 16);
    const auto         together = [&](const scene & s, int n_threads) {
        return attends_together(s.task(out, 0, s.n_tokens), n_threads);
    };
    scene s(16, 16, n_cells, 7, 8, 4, rng);
    CHECK(together(s, 2) && together(s, 3));
    CHECK(!together(s, 1) && !together(s, 4));                   // too few cells
    CHECK(!together(scene(16, 16, n_cells, 2, 4, 2, rng), 3));   // too few columns
    CHECK(!together(scene(16, 64, n_cells, 2, 4, 1, rng), 2));   // one key head
    CHECK(!together(scene(16, 16, n_cells, 2, 70, 70, rng), 2)); // too many heads
    CHECK(!together(scene(16, 16, n_cells, 9, 20, 10, rng), 2)); // too many rows
    s.texts = {0, 0, 0, 0, 0, 0, 0};
    CHECK(together(s, 2));
    s.texts.back() = 1;
    CHECK(!together(s, 2));
}

TEST(an_infinity_reaches_only_the_tokens_that_see_it) {
    std::mt19937 rng(8);
    for (const kernel_set * kernels : kernels_here()) {
        for (const int64_t n_cells : {40, 6200}) {
            scene s(32, 32, n_cells, 5, 4, 2, rng);
            for (size_t t = 0; t < 5; ++t) { // token t sees the cells up to n_cells - 5 + t
                for (size_t c = size_t(n_cells) - 5; c < size_t(n_cells); ++c) {
                    s.mask[t * size_t(n_cells) + c] = c <= size_t(n_cells) - 5 + t ? 0 : unseen;
                }
            }
            const size_t cell              = size_t(n_cells - 2) * 2 * 32; // seen by the last two tokens
            s.k[cell]                      = 0x7e00;                       // not a number
            s.v[cell + 40]                 = 0x7c00;                       // infinity, for the other head
            const std::vector<float> alone = s.run(*kernels, 1, 1);
            for (size_t i = 0; i < alone.size(); ++i) {
                CHECK(i >= size_t(3 * 4 * 32) || std::isfinite(alone[i]));
            }
            CHECK(std::isnan(alone[4 * 4 * 32]) && std::isinf(alone[4 * 4 * 32 + 2 * 32 + 8]));
            for (const int n_threads : {1, 2, 3}) {
                const std::vector<float> got = s.run(*kernels, 5, n_threads);
                CHECK(std::memcmp(got.data(), alone.data(), got.size() * sizeof(float)) == 0);
            }
        }
    }
}

TEST(masked_cells_may_hold_anything_and_stand_anywhere) {
    std::mt19937 rng(4);
    for (const kernel_set * kernels : kernels_here()) {
        const scene        s(32, 32, 40, 3, 2, 1, rng);
        std::vector<float> before = s.run(*kernels, 3, 1);

        // The same cells further apart, infinities and NaN between them.
        scene far(32, 32, 120, 3, 2, 1, rng);
        far.q = s.q;
        std::fill(far.k.begin(), far.k.end(), uint16_t(0x7e00));
        std::fill(far.v.begin(), far.v.end(), uint16_t(0x7c00));
        std::fill(far.mask.begin(), far.mask.end(), unseen);
        for (size_t c = 0; c < 40; ++c) {
            std::copy_n(s.k.begin() + ptrdiff_t(c * 32), 32, far.k.begin() + ptrdiff_t(3 * c * 32));
            std::copy_n(s.v.begin() + ptrdiff_t(c * 32), 32, far.v.begin() + ptrdiff_t(3 * c * 32));
            for (size_t t = 0; t < 3; ++t) {
                far.mask[t * 120 + 3 * c] = s.mask[t * 40 + c];
            }
        }
        CHECK(far.run(*kernels, 3, 2) == before);
    }
}

TEST(a_row_that_sees_nothing_is_zero_and_not_a_number_goes_through) {
    std::mt19937 rng(5);
    for (const kernel_set * kernels : kernels_here()) {
        scene s(32, 32, 40, 2, 2, 1, rng);
        std::fill_n(s.mask.begin(), 40, unseen);
        s.q.back()                   = std::numeric_limits<float>::quiet_NaN();
        const std::vector<float> out = s.run(*kernels, 2, 1);
        for (size_t i = 0; i < out.size(); ++i) {
            CHECK(i < 64 ? out[i] == 0 : i >= 96 ? std::isnan(out[i]) : std::isfinite(out[i]));
        }
    }
}
