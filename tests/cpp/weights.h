// Random weights in the file's form, their values as GGUF defines them, and products of them.
#pragma once

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "cpu/float16.h"
#include "cpu/product.h"
#include "cpu/repack.h"
#include "weights_of_books.h"

namespace {

using namespace duo::cpu;

using bytes = std::vector<uint8_t>;

// Rows of random weights in the file's form: random codes, scales of ordinary size.
bytes random_rows(format f, int64_t n, int64_t k, std::mt19937 & rng) {
    const format_traits & t = traits_of(f);
    bytes                 out(size_t(n * k / t.n_file_block * t.n_file_bytes));
    for (auto & b : out) {
        b = uint8_t(rng());
    }
    const auto half = [&](uint8_t * p) { // 2^-7 to 2^-5, either sign
        const auto h = uint16_t((rng() & 0x83ff) | ((8 + rng() % 2) << 10));
        std::memcpy(p, &h, 2);
    };
    if (f == format::f32) {
        std::normal_distribution<float> normal;
        for (size_t i = 0; i < out.size(); i += 4) {
            const float x = normal(rng);
            std::memcpy(&out[i], &x, 4);
        }
        return out;
    }
    if (f == format::bf16 || f == format::f16) {
        for (size_t i = 0; i < out.size(); i += 2) {
            if (f == format::f16) {
                half(&out[i]);
            } else {
                const auto h = uint16_t((rng() & 0x807f) | ((120 + rng() % 4) << 7));
                std::memcpy(&out[i], &h, 2);
            }
        }
        return out;
    }
    for (size_t i = 0; i < out.size(); i += size_t(t.n_file_bytes)) {
        switch (f) {
            case format::q6_k:
                half(&out[i + 208]);
                break;
            case format::tq1_0:
                half(&out[i + 52]);
                break;
            case format::tq2_0:
                half(&out[i + 64]);
                break;
            case format::q2_k:
                half(&out[i + 80]);
                half(&out[i + 82]);
                break;
            case format::q3_k:
                half(&out[i + 108]);
                break;
            case format::iq1_m: { // the scale's four parts
                uint8_t d[2];
                half(d);
                for (int j = 0; j < 4; ++j) {
                    uint8_t & to = out[i + size_t(49 + 2 * j)];
                    to           = uint8_t((to & 15) | ((d[j / 2] >> (j % 2 * 4)) << 4));
                }
                break;
            }
            case format::mxfp4:
                out[i] = uint8_t(119 + rng() % 4);
                break;
            case format::q4_1:
            case format::q5_1:
            case format::q4_k:
            case format::q5_k:
                half(&out[i + 2]);
                [[fallthrough]];
            default:
                half(&out[i]);
        }
    }
    return out;
}

// One row as numbers: ggml-quants.c, dequantize_row_*, read anew.
[[maybe_unused]] std::vector<double> weights_of(format f, const uint8_t * p, int64_t k) {
    static const int    nl[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
    std::vector<double> w;
    const auto          half = [](const uint8_t * q) { return double(float_of_half(q)); };
    const auto          six  = [](const uint8_t * q, int j, bool least) { // scale or minimum j
        const int at = j + (least ? 4 : 0);
        return j < 4 ? q[at] & 63 : ((least ? q[j + 4] >> 4 : q[j + 4] & 15) | ((q[least ? j : j - 4] >> 6) << 4));
    };
    for (; int64_t(w.size()) < k; p += traits_of(f).n_file_bytes) {
        switch (f) {
            case format::q8_0:
                for (int i = 0; i < 32; ++i) {
                    w.push_back(half(p) * int8_t(p[2 + i]));
                }
                break;
            case format::q4_0:
            case format::iq4_nl:
                for (int i = 0; i < 32; ++i) {
                    const int c = i < 16 ? p[2 + i] & 15 : p[2 + i - 16] >> 4;
                    w.push_back(half(p) * (f == format::q4_0 ? c - 8 : nl[c]));
                }
                break;
            case format::q4_1:
            case format::q5_0:
            case format::q5_1: {
                const int       n_scales = f == format::q5_0 ? 2 : 4;
                const uint8_t * q        = p + n_scales + (f == format::q4_1 ? 0 : 4);
                for (int i = 0; i < 32; ++i) {
                    int c = i < 16 ? q[i] & 15 : q[i - 16] >> 4;
                    if (f != format::q4_1) {
                        uint32_t high;
                        std::memcpy(&high, p + n_scales, 4);
                        c |= int((high >> i) & 1) << 4;
                    }
                    w.push_back(f == format::q5_0 ? half(p) * (c - 16) : half(p) * c + half(p + 2));
                }
                break;
            }
            case format::mxfp4: {
                static const double e2m1[8] = {0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0};
                for (int i = 0; i < 32; ++i) {
                    const int    c = i < 16 ? p[1 + i] & 15 : p[1 + i - 16] >> 4;
                    const double m = e2m1[c % 8];
                    w.push_back(std::ldexp(c < 8 ? m : -m, p[0] - 127));
                }
                break;
            }
            case format::tq1_0:
                for (int i = 0; i < 256; ++i) {
                    const int r  = i < 160 ? i % 32 : i < 240 ? 32 + i % 16 : 48 + i % 4;
                    const int n  = i < 160 ? i / 32 : i < 240 ? (i - 160) / 16 : (i - 240) / 4;
                    int       up = p[r];
                    for (int j = 0; j < n; ++j) {
                        up = up * 3 % 256;
                    }
                    w.push_back(half(p + 52) * (up * 3 / 256 - 1));
                }
                break;
            case format::tq2_0:
                for (int i = 0; i < 256; ++i) {
                    w.push_back(half(p + 64) * (((p[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2)) & 3) - 1));
                }
                break;
            case format::q2_k:
                for (int i = 0; i < 256; ++i) {
                    const int c = (p[16 + i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2)) & 3;
                    w.push_back(half(p + 80) * (p[i / 16] & 15) * c - half(p + 82) * (p[i / 16] >> 4));
                }
                break;
            case format::q3_k:
                for (int i = 0; i < 256; ++i) {
                    const int       j = i / 16;
                    const uint8_t * s = p + 96;
                    const int       scale =
                        ((j < 8 ? s[j] : s[j - 8] >> 4) & 15) | (((s[8 + j % 4] >> (j / 4 * 2)) & 3) << 4);
                    const int  c   = (p[32 + i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2)) & 3;
                    const bool set = ((p[i % 32] >> (i / 32)) & 1) != 0;
                    w.push_back(half(p + 108) * (scale - 32) * (set ? c : c - 4));
                }
                break;
            case format::iq4_xs:
                for (int i = 0; i < 256; ++i) {
                    const int  b     = i / 32;
                    const auto high  = uint16_t(p[2] | (p[3] << 8));
                    const int  scale = ((p[4 + b / 2] >> (b % 2 * 4)) & 15) | (((high >> (2 * b)) & 3) << 4);
                    const int  c     = i % 32 < 16 ? p[8 + b * 16 + i % 16] & 15 : p[8 + b * 16 + i % 16] >> 4;
                    w.push_back(half(p) * (scale - 32) * nl[c]);
                }
                break;
            case format::iq2_xxs:
            case format::iq2_xs:
            case format::iq2_s:
            case format::iq3_xxs:
            case format::iq3_s:
            case format::iq1_s:
                for (int i = 0; i < 256; ++i) {
                    w.push_back(half(p) * book_number(f, p, i));
                }
                break;
            case format::iq1_m: {
                const uint8_t d[2] = {uint8_t((p[49] >> 4) | (p[51] & 0xf0)), uint8_t((p[53] >> 4) | (p[55] & 0xf0))};
                for (int i = 0; i < 256; ++i) {
                    w.push_back(half(d) * book_number(f, p, i));
                }
                break;
            }
            case format::q4_k:
            case format::q5_k:
                for (int i = 0; i < 256; ++i) {
                    const int       j = i / 32;
                    const uint8_t * q = p + (f == format::q5_k ? 48 : 16);
                    int             c = q[i / 64 * 32 + i % 32];
                    c                 = j % 2 != 0 ? c >> 4 : c & 15;
                    if (f == format::q5_k) {
                        c |= ((p[16 + i % 32] >> j) & 1) << 4;
                    }
                    w.push_back(half(p) * six(p + 4, j, false) * c - half(p + 2) * six(p + 4, j, true));
                }
                break;
            case format::q6_k:
                for (int i = 0; i < 256; ++i) {
                    const int h = i / 128;
                    const int r = i % 128;
                    int       c = p[64 * h + r % 64];
                    c           = r < 64 ? c & 15 : c >> 4;
                    c |= ((p[128 + 32 * h + r % 32] >> (r / 32 * 2)) & 3) << 4;
                    w.push_back(half(p + 208) * int8_t(p[192 + i / 16]) * (c - 32));
                }
                break;
            case format::bf16:
                w.push_back(double(float_of_bf16(p)));
                break;
            case format::f16:
                w.push_back(half(p));
                break;
            case format::f32: {
                float x;
                std::memcpy(&x, p, 4);
                w.push_back(double(x));
                break;
            }
        }
    }
    return w;
}

struct problem {
    matrix_shape       s;
    bytes              file;
    bytes              packed;
    size_t             row_bytes;
    std::vector<float> x; // [n_x][k]
    int                n_x;

    // exact: inputs that 8-bit codes hold without error, whatever the group; so only the sums round.
    problem(format f, int64_t n, int64_t k, int n_x, bool exact, std::mt19937 & rng)
        : s{f, n, k}, file(random_rows(f, n, k, rng)), packed(s.bytes()), row_bytes(file.size() / size_t(n)),
          x(size_t(n_x * k)), n_x(n_x) {
        std::normal_distribution<float> normal;
        for (size_t i = 0; i < x.size(); ++i) {
            x[i] = exact ? (i % 32 == 5 ? 127.0f : float(int(rng() % 255) - 127)) / 64.0f : normal(rng);
        }
        pack_matrices(s, 1, file.data(), row_bytes, packed.data(), 1);
    }

    std::vector<float> run(const kernel_set & kernels, int from, int n, int n_threads, bool twice = false) const {
        std::vector<float> y(size_t(n * s.n), NAN);
        job                j{packed.data(), {}};
        for (int i = 0; i < n; ++i) {
            j.columns.push_back({x.data() + (from + i) * s.k, y.data() + i * s.n});
        }
        workspace memory;
        multiply(kernels, s, {j}, n_threads, memory, false);
        if (twice) { // the inputs are there already
            std::fill(y.begin(), y.end(), NAN);
            multiply(kernels, s, {j}, n_threads, memory, true);
        }
        return y;
    }
};

constexpr format formats[] = {format::q8_0,   format::q4_0,    format::q4_1,   format::q5_0,    format::q5_1,
                              format::iq4_nl, format::mxfp4,   format::q2_k,   format::q3_k,    format::q4_k,
                              format::q5_k,   format::q6_k,    format::iq4_xs, format::iq2_xxs, format::iq2_xs,
                              format::iq2_s,  format::iq3_xxs, format::iq3_s,  format::iq1_s,   format::iq1_m,
                              format::tq1_0,  format::tq2_0,   format::bf16,   format::f16,     format::f32};

} // namespace
