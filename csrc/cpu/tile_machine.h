// The tile registers in plain C++, as the instructions are defined in Intel's Software Developer's Manual (volume 2:
// LDTILECFG, STTILECFG, TILELOADD, TILESTORED, TILEZERO, TDPBSSD, TDPBF16PS): for machines without them. Errors that
// fault there call tile_fault() here. A start row also does: it belongs to an interrupted load, which cannot happen
// here.
#pragma once

#include <cmath>
#include <cstring>

#include "amx.h"
#include "float16.h"
#include "kernel.h"

namespace duo::cpu {
namespace {

// Of a row of a tile.
template <class T> T value(const uint8_t * row, int i) {
    T v;
    std::memcpy(&v, row + size_t(i) * sizeof v, sizeof v);
    return v;
}

// A denormal is zero.
inline float flushed(float f) {
    return std::fpclassify(f) == FP_SUBNORMAL ? std::copysign(0.0f, f) : f;
}

struct tile_machine {
    static constexpr int n_registers = 8;

    // The state of one thread.
    struct state {
        tile_config config{}; // palette 0: none
        uint8_t     data[n_registers][16][64]{};
    };

    static state & mine() {
        static thread_local state s;
        return s;
    }

    static void configure(const tile_config & c) {
        state next;
        if (c.palette != 0) {
            require(c.palette == 1 && c.start_row == 0, "ldtilecfg: palette or start row");
            for (const uint8_t b : c.reserved) {
                require(b == 0, "ldtilecfg: reserved bytes");
            }
            for (int t = 0; t < 16; ++t) {
                require(c.rows[t] <= 16 && c.n_bytes[t] <= 64 && (c.rows[t] == 0) == (c.n_bytes[t] == 0) &&
                            (t < n_registers || c.rows[t] == 0),
                        "ldtilecfg: shape of a tile");
            }
            next.config = c;
        }
        mine() = next;
    }
    static void save(tile_config & c) { c = mine().config; }

    static void zero(int t) {
        use(t);
        std::memset(mine().data[t], 0, sizeof mine().data[t]);
    }

    static void load(int t, const void * p, int64_t stride) {
        zero(t); // clears rows and bytes outside the shape
        const tile_config & c = mine().config;
        for (int m = 0; m < c.rows[t]; ++m) {
            std::memcpy(mine().data[t][m], static_cast<const uint8_t *>(p) + m * stride, c.n_bytes[t]);
        }
    }

    static void store(int t, void * p, int64_t stride) {
        use(t);
        const tile_config & c = mine().config;
        for (int m = 0; m < c.rows[t]; ++m) {
            std::memcpy(static_cast<uint8_t *>(p) + m * stride, mine().data[t][m], c.n_bytes[t]);
        }
    }

    static void dot_codes(int sum, int inputs, int weights) {
        const tile_config & c = shapes_that_fit(sum, inputs, weights);
        auto &              d = mine().data;
        for (int m = 0; m < c.rows[sum]; ++m) {
            for (int k = 0; k < c.rows[weights]; ++k) {
                for (int n = 0; n < c.n_bytes[sum] / 4; ++n) {
                    auto s = value<uint32_t>(d[sum][m], n); // wraps
                    for (int i = 0; i < 4; ++i) {
                        s += uint32_t(int8_t(d[inputs][m][4 * k + i]) * int8_t(d[weights][k][4 * n + i]));
                    }
                    std::memcpy(d[sum][m] + 4 * n, &s, 4);
                }
            }
        }
    }

    // Even and odd products have separate sums that begin at zero. Denormals are zero; rounding is to nearest even.
    static void dot_bf16(int sum, int inputs, int weights) {
        const tile_config & c = shapes_that_fit(sum, inputs, weights);
        auto &              d = mine().data;
        for (int m = 0; m < c.rows[sum]; ++m) {
            for (int n = 0; n < c.n_bytes[sum] / 4; ++n) {
                float s[2] = {};
                for (int k = 0; k < c.rows[weights]; ++k) {
                    for (int i = 0; i < 2; ++i) {
                        s[i] = flushed(std::fmaf(flushed(float_of_bf16(d[inputs][m] + 4 * k + 2 * i)),
                                                 flushed(float_of_bf16(d[weights][k] + 4 * n + 2 * i)), s[i]));
                    }
                }
                const float f = flushed(flushed(value<float>(d[sum][m], n)) + flushed(s[0] + s[1]));
                std::memcpy(d[sum][m] + 4 * n, &f, 4);
            }
        }
    }

  private:
    static void require(bool ok, const char * what) {
        if (!ok) {
            tile_fault(what);
        }
    }

    static void use(int t) {
        require(mine().config.palette == 1, "no configuration");
        require(mine().config.rows[t] != 0, "a tile without a shape");
        require(mine().config.n_bytes[t] % 4 == 0, "bytes of a row");
    }

    static const tile_config & shapes_that_fit(int sum, int inputs, int weights) {
        use(sum);
        use(inputs);
        use(weights);
        const tile_config & c = mine().config;
        require(sum != inputs && sum != weights && inputs != weights, "a tile twice");
        require(c.n_bytes[sum] == c.n_bytes[weights] && c.rows[sum] == c.rows[inputs] &&
                    c.n_bytes[inputs] == 4 * c.rows[weights],
                "shapes of a product");
        return c;
    }
};

} // namespace
} // namespace duo::cpu
