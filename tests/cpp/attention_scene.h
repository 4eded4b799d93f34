// What test_attention.cpp computes with: queries, a cache, and attention in double precision.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "check.h"
#include "cpu/attention.h"
#include "cpu/float16.h"
#include "cpu/kernel.h"
#include "cpu/product.h"

namespace duo_test {

using namespace duo::cpu;

inline uint16_t half_of(float f) { // of ordinary numbers, cut
    uint32_t u;
    std::memcpy(&u, &f, 4);
    const auto exponent = int((u >> 23) & 255) - 112;
    return exponent <= 0 ? uint16_t(0) : uint16_t(((u >> 16) & 0x8000) | uint32_t(exponent << 10) | ((u >> 13) & 1023));
}

inline double number_of(uint16_t half) {
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
        a.stride     = {.q_token    = size_t(n_heads * n_k) * 4,
                        .q_head     = size_t(n_k) * 4,
                        .k_cell     = size_t(n_kv_heads * n_k) * 2,
                        .k_head     = size_t(n_k) * 2,
                        .v_cell     = size_t(n_kv_heads * n_v) * 2,
                        .v_head     = size_t(n_v) * 2,
                        .mask_token = size_t(n_cells) * 2};
        a.q          = reinterpret_cast<const uint8_t *>(q.data()) + size_t(from) * a.stride.q_token;
        a.k          = reinterpret_cast<const uint8_t *>(k.data());
        a.v          = reinterpret_cast<const uint8_t *>(v.data());
        a.mask       = mask.empty() ? nullptr
                                    : reinterpret_cast<const uint8_t *>(mask.data()) + size_t(from) * a.stride.mask_token;
        a.sinks      = sinks.empty() ? nullptr : sinks.data();
        a.texts      = texts.empty() ? nullptr : texts.data() + from;
        a.order      = order.empty() ? nullptr : order.data();
        a.out        = out.data() + from * n_heads * n_v;
        a.scale      = scale;
        a.softcap    = softcap;
        a.max_bias   = max_bias;
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

} // namespace duo_test
