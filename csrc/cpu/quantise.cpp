#include "quantise.h"

#include <array>
#include <cmath>

#include "float16.h"

namespace duo::cpu {

namespace {

constexpr int n_block = 32;

// Scales to try: the largest number becomes the outermost value, or so much of it.
constexpr float reaches[] = {1.0f, 0.94f, 0.88f, 1.07f};

// The values of 4-bit codes, and the nearest code of each integer from -128 on.
struct code_book {
    std::array<int8_t, 16>   values;
    std::array<uint8_t, 256> nearest;

    explicit constexpr code_book(const std::array<int8_t, 16> & v) : values(v), nearest() {
        for (int i = 0; i < 256; ++i) {
            int best = 0;
            for (int c = 1; c < 16; ++c) {
                const auto off = [&](int code) {
                    const int d = v[size_t(code)] - (i - 128);
                    return d < 0 ? -d : d;
                };
                best = off(c) < off(best) ? c : best;
            }
            nearest[size_t(i)] = uint8_t(best);
        }
    }
};

constexpr code_book of_q4_0({-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7});
constexpr code_book of_iq4_nl({-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113});

struct block_codes {
    uint8_t code[n_block];
    float   scale; // the best for these codes
    float   gain;  // how much smaller than the block's own sum of squares the sum of squared errors is
};

block_codes with_scale(const code_book & book, const float * x, float scale) {
    block_codes b{};
    const float inverse = 1.0f / scale;
    float       xq      = 0.0f;
    float       qq      = 0.0f;
    for (int i = 0; i < n_block; ++i) {
        const float at = std::fmin(std::fmax(x[i] * inverse, -128.0f), 127.0f);
        b.code[i]      = book.nearest[size_t(int(at + 128.5f)) & 255];
        const float q  = book.values[b.code[i]];
        xq += x[i] * q;
        qq += q * q;
    }
    b.scale = qq > 0.0f ? xq / qq : 0.0f;
    b.gain  = b.scale * xq;
    return b;
}

void quantise_block(const code_book & book, const float * x, uint8_t * file) {
    float most = 0.0f;
    float sum  = 0.0f; // not finite if a number is not
    for (int i = 0; i < n_block; ++i) {
        most = std::fabs(x[i]) > std::fabs(most) ? x[i] : most;
        sum += std::fabs(x[i]);
    }
    block_codes best{};
    best.scale = std::isfinite(sum) ? 0.0f : NAN;
    // In a block of smaller numbers a scale's inverse would be infinite.
    for (const float reach : reaches) {
        for (const float sign : {1.0f, -1.0f}) {
            const float scale = most * reach / (sign * float(book.values[0]));
            if (std::isfinite(sum) && std::fabs(scale) > 1e-30f) {
                const block_codes b = with_scale(book, x, scale);
                best                = b.gain > best.gain ? b : best;
            }
        }
    }
    const uint16_t d = half_of_float(best.scale);
    std::memcpy(file, &d, 2);
    for (int i = 0; i < n_block / 2; ++i) {
        file[2 + i] = uint8_t(best.code[i] | (best.code[i + n_block / 2] << 4));
    }
}

} // namespace

void quantise_row(format f, const float * x, int64_t n, uint8_t * file) {
    for (int64_t i = 0; i < n; i += n_block, file += traits_of(f).n_file_bytes) {
        quantise_block(f == format::q4_0 ? of_q4_0 : of_iq4_nl, x + i, file);
    }
}

} // namespace duo::cpu
