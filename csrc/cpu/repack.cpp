#include "repack.h"

#include <cstring>

#if defined(_OPENMP)
#include <omp.h>
#endif

namespace duo::cpu {

namespace {

// One row of one unit, as numbers: codes of up to 8 bits (unsigned), scales and minima of its blocks.
struct unit_row {
    alignas(64) uint8_t codes[256];
    uint8_t d[4];       // f16 scale (and minimum's scale) of the unit; for blocks of 32: of block 0 and 1
    uint8_t scales[16]; // of its blocks
    uint8_t least[8];
};

uint32_t load32(const uint8_t * p) {
    uint32_t u;
    std::memcpy(&u, p, 4);
    return u;
}

void store32(uint8_t * p, uint32_t u) {
    std::memcpy(p, &u, 4);
}

// --- The file's blocks (ggml-common.h: block_q8_0 ... block_q6_K) ---

void read_q8_0(const uint8_t * p, unit_row & u) {
    for (int b = 0; b < 2; ++b, p += 34) {
        std::memcpy(u.d + 2 * b, p, 2);
        for (int i = 0; i < 32; ++i) {
            u.codes[32 * b + i] = p[2 + i] ^ 0x80;
        }
    }
}

void write_q8_0(const unit_row & u, uint8_t * p) {
    for (int b = 0; b < 2; ++b, p += 34) {
        std::memcpy(p, u.d + 2 * b, 2);
        for (int i = 0; i < 32; ++i) {
            p[2 + i] = u.codes[32 * b + i] ^ 0x80;
        }
    }
}

// Q4_0, IQ4_NL: code i and i + 16 of a block share a byte.
void read_q4(const uint8_t * p, unit_row & u) {
    for (int b = 0; b < 2; ++b, p += 18) {
        std::memcpy(u.d + 2 * b, p, 2);
        for (int i = 0; i < 16; ++i) {
            u.codes[32 * b + i]      = p[2 + i] & 15;
            u.codes[32 * b + i + 16] = p[2 + i] >> 4;
        }
    }
}

void write_q4(const unit_row & u, uint8_t * p) {
    for (int b = 0; b < 2; ++b, p += 18) {
        std::memcpy(p, u.d + 2 * b, 2);
        for (int i = 0; i < 16; ++i) {
            p[2 + i] = uint8_t(u.codes[32 * b + i] | (u.codes[32 * b + i + 16] << 4));
        }
    }
}

// 12 bytes hold 8 scales and 8 minima of 6 bits (ggml-quants.c: get_scale_min_k4).
void read_scales(const uint8_t * p, unit_row & u) {
    for (int j = 0; j < 4; ++j) {
        u.scales[j]     = p[j] & 63;
        u.least[j]      = p[j + 4] & 63;
        u.scales[j + 4] = uint8_t((p[j + 8] & 15) | ((p[j] >> 6) << 4));
        u.least[j + 4]  = uint8_t((p[j + 8] >> 4) | ((p[j + 4] >> 6) << 4));
    }
}

void write_scales(const unit_row & u, uint8_t * p) {
    for (int j = 0; j < 4; ++j) {
        p[j]     = uint8_t(u.scales[j] | ((u.scales[j + 4] >> 4) << 6));
        p[j + 4] = uint8_t(u.least[j] | ((u.least[j + 4] >> 4) << 6));
        p[j + 8] = uint8_t((u.scales[j + 4] & 15) | ((u.least[j + 4] & 15) << 4));
    }
}

void read_q45_k(const uint8_t * p, unit_row & u, bool fifth) {
    std::memcpy(u.d, p, 4);
    read_scales(p + 4, u);
    const uint8_t * high = p + 16;
    const uint8_t * q    = p + (fifth ? 48 : 16);
    for (int j = 0; j < 4; ++j) {
        for (int i = 0; i < 32; ++i) {
            u.codes[64 * j + i]      = q[32 * j + i] & 15;
            u.codes[64 * j + 32 + i] = q[32 * j + i] >> 4;
        }
        for (int i = 0; fifth && i < 32; ++i) {
            u.codes[64 * j + i] |= uint8_t(((high[i] >> (2 * j)) & 1) << 4);
            u.codes[64 * j + 32 + i] |= uint8_t(((high[i] >> (2 * j + 1)) & 1) << 4);
        }
    }
}

void write_q45_k(const unit_row & u, uint8_t * p, bool fifth) {
    std::memcpy(p, u.d, 4);
    write_scales(u, p + 4);
    uint8_t * high = p + 16;
    uint8_t * q    = p + (fifth ? 48 : 16);
    for (int j = 0; j < 4; ++j) {
        for (int i = 0; i < 32; ++i) {
            q[32 * j + i] = uint8_t((u.codes[64 * j + i] & 15) | ((u.codes[64 * j + 32 + i] & 15) << 4));
        }
    }
    for (int i = 0; fifth && i < 32; ++i) {
        high[i] = 0;
        for (int j = 0; j < 8; ++j) {
            high[i] |= uint8_t((u.codes[32 * j + i] >> 4) << j);
        }
    }
}

void read_q6_k(const uint8_t * p, unit_row & u) {
    for (int n = 0; n < 2; ++n) {
        const uint8_t * low  = p + 64 * n;
        const uint8_t * high = p + 128 + 32 * n;
        uint8_t *       c    = u.codes + 128 * n;
        for (int i = 0; i < 32; ++i) {
            c[i]      = uint8_t((low[i] & 15) | ((high[i] & 3) << 4));
            c[i + 32] = uint8_t((low[i + 32] & 15) | (((high[i] >> 2) & 3) << 4));
            c[i + 64] = uint8_t((low[i] >> 4) | (((high[i] >> 4) & 3) << 4));
            c[i + 96] = uint8_t((low[i + 32] >> 4) | ((high[i] >> 6) << 4));
        }
    }
    std::memcpy(u.scales, p + 192, 16);
    std::memcpy(u.d, p + 208, 2);
}

void write_q6_k(const unit_row & u, uint8_t * p) {
    for (int n = 0; n < 2; ++n) {
        uint8_t *       low  = p + 64 * n;
        uint8_t *       high = p + 128 + 32 * n;
        const uint8_t * c    = u.codes + 128 * n;
        for (int i = 0; i < 32; ++i) {
            low[i]      = uint8_t((c[i] & 15) | ((c[i + 64] & 15) << 4));
            low[i + 32] = uint8_t((c[i + 32] & 15) | ((c[i + 96] & 15) << 4));
            high[i] =
                uint8_t((c[i] >> 4) | ((c[i + 32] >> 4) << 2) | ((c[i + 64] >> 4) << 4) | ((c[i + 96] >> 4) << 6));
        }
    }
    std::memcpy(p + 192, u.scales, 16);
    std::memcpy(p + 208, u.d, 2);
}

// --- The panel's units: what panel.h reads; lane: the row's place in the panel ---

// Pairs of four codes share four bytes. Behind every n_vectors of them stands a vector of high bits, if n_high is 1:
// what is read together stands together, or the hardware's prefetcher sees two streams that keep jumping.
struct nibble_place {
    int    n_vectors, n_high;
    size_t operator()(int i) const { return size_t(64 * (i + i / n_vectors * n_high)); }
};

void put_nibbles(const unit_row & u, int n, uint8_t * q, int lane, nibble_place at = {1, 0}) {
    for (int i = 0; i < n / 8; ++i) {
        store32(q + at(i) + 4 * lane,
                (load32(u.codes + 8 * i) & 0x0f0f0f0f) | ((load32(u.codes + 8 * i + 4) & 0x0f0f0f0f) << 4));
    }
}

void get_nibbles(unit_row & u, int n, const uint8_t * q, int lane, nibble_place at = {1, 0}) {
    for (int i = 0; i < n / 8; ++i) {
        const uint32_t v = load32(q + at(i) + 4 * lane);
        store32(u.codes + 8 * i, v & 0x0f0f0f0f);
        store32(u.codes + 8 * i + 4, (v >> 4) & 0x0f0f0f0f);
    }
}

// Scales and minima of 6 bits: low four bits of both in a byte, high ones of blocks j and j + 4 in another.
void put_scales(const unit_row & u, uint8_t * p, int lane) {
    for (int j = 0; j < 8; ++j) {
        p[16 * j + lane] = uint8_t((u.scales[j] & 15) | ((u.least[j] & 15) << 4));
    }
    for (int j = 0; j < 4; ++j) {
        p[128 + 16 * j + lane] = uint8_t((u.scales[j] >> 4) | ((u.least[j] >> 4) << 2) | ((u.scales[j + 4] >> 4) << 4) |
                                         ((u.least[j + 4] >> 4) << 6));
    }
}

void get_scales(unit_row & u, const uint8_t * p, int lane) {
    for (int j = 0; j < 8; ++j) {
        const int high = p[128 + 16 * (j % 4) + lane] >> (j < 4 ? 0 : 4);
        u.scales[j]    = uint8_t((p[16 * j + lane] & 15) | ((high & 3) << 4));
        u.least[j]     = uint8_t((p[16 * j + lane] >> 4) | (((high >> 2) & 3) << 4));
    }
}

// Bits 4 and up of eight groups of four codes (n_bits = 1) or of four groups (2) share four bytes.
void put_high_bits(const unit_row & u, int n_bits, uint8_t * h, size_t stride, int lane) {
    const int      n_groups = 8 / n_bits;
    const uint32_t mask     = n_bits == 1 ? 0x01010101 : 0x03030303;
    for (int b = 0; b < 256 / (4 * n_groups); ++b) {
        uint32_t v = 0;
        for (int g = 0; g < n_groups; ++g) {
            v |= ((load32(u.codes + 4 * (b * n_groups + g)) >> 4) & mask) << (n_bits * g);
        }
        store32(h + stride * size_t(b) + 4 * lane, v);
    }
}

void get_high_bits(unit_row & u, int n_bits, const uint8_t * h, size_t stride, int lane) {
    const int      n_groups = 8 / n_bits;
    const uint32_t mask     = n_bits == 1 ? 0x01010101 : 0x03030303;
    for (int b = 0; b < 256 / (4 * n_groups); ++b) {
        const uint32_t v = load32(h + stride * size_t(b) + 4 * lane);
        for (int g = 0; g < n_groups; ++g) {
            uint8_t * c = u.codes + 4 * (b * n_groups + g);
            store32(c, load32(c) | (((v >> (n_bits * g)) & mask) << 4));
        }
    }
}

void put_unit(format f, const unit_row & u, uint8_t * p, int lane) {
    switch (f) {
        case format::q8_0:
            std::memcpy(p + 2 * lane, u.d, 2);
            std::memcpy(p + 32 + 2 * lane, u.d + 2, 2);
            for (int i = 0; i < 16; ++i) {
                store32(p + 64 + 64 * i + 4 * lane, load32(u.codes + 4 * i));
            }
            break;
        case format::q4_0:
        case format::iq4_nl:
            std::memcpy(p + 2 * lane, u.d, 2);
            std::memcpy(p + 32 + 2 * lane, u.d + 2, 2);
            put_nibbles(u, 64, p + 64, lane);
            break;
        case format::q4_k:
        case format::q5_k:
            std::memcpy(p + 2 * lane, u.d, 2);
            std::memcpy(p + 32 + 2 * lane, u.d + 2, 2);
            put_scales(u, p + 64, lane);
            put_nibbles(u, 256, p + 256, lane, {4, f == format::q5_k ? 1 : 0});
            if (f == format::q5_k) {
                put_high_bits(u, 1, p + 512, 320, lane);
            }
            break;
        case format::q6_k:
            std::memcpy(p + 2 * lane, u.d, 2);
            for (int j = 0; j < 16; ++j) {
                p[64 + 16 * j + lane] = u.scales[j];
            }
            put_nibbles(u, 256, p + 320, lane, {2, 1});
            put_high_bits(u, 2, p + 448, 192, lane);
            break;
        case format::bf16:
        case format::f16:
            break; // put_floats
    }
}

void get_unit(format f, unit_row & u, const uint8_t * p, int lane) {
    std::memcpy(u.d, p + 2 * lane, 2);
    if (f != format::q6_k) {
        std::memcpy(u.d + 2, p + 32 + 2 * lane, 2);
    }
    switch (f) {
        case format::q8_0:
            for (int i = 0; i < 16; ++i) {
                store32(u.codes + 4 * i, load32(p + 64 + 64 * i + 4 * lane));
            }
            break;
        case format::q4_0:
        case format::iq4_nl:
            get_nibbles(u, 64, p + 64, lane);
            break;
        case format::q4_k:
        case format::q5_k:
            get_scales(u, p + 64, lane);
            get_nibbles(u, 256, p + 256, lane, {4, f == format::q5_k ? 1 : 0});
            if (f == format::q5_k) {
                get_high_bits(u, 1, p + 512, 320, lane);
            }
            break;
        case format::q6_k:
            for (int j = 0; j < 16; ++j) {
                u.scales[j] = p[64 + 16 * j + lane];
            }
            get_nibbles(u, 256, p + 320, lane, {2, 1});
            get_high_bits(u, 2, p + 448, 192, lane);
            break;
        case format::bf16:
        case format::f16:
            break;
    }
}

// bf16 in pairs of columns, f16 column by column.
size_t float_place(format f, int k, int lane) {
    return f == format::bf16 ? size_t(k / 2 * 64 + lane * 4 + k % 2 * 2) : size_t(k * 32 + lane * 2);
}

void read_unit(format f, const uint8_t * p, unit_row & u) {
    switch (f) {
        case format::q8_0:
            return read_q8_0(p, u);
        case format::q4_0:
        case format::iq4_nl:
            return read_q4(p, u);
        case format::q4_k:
        case format::q5_k:
            return read_q45_k(p, u, f == format::q5_k);
        default:
            return read_q6_k(p, u);
    }
}

void write_unit(format f, const unit_row & u, uint8_t * p) {
    switch (f) {
        case format::q8_0:
            return write_q8_0(u, p);
        case format::q4_0:
        case format::iq4_nl:
            return write_q4(u, p);
        case format::q4_k:
        case format::q5_k:
            return write_q45_k(u, p, f == format::q5_k);
        default:
            return write_q6_k(u, p);
    }
}

bool is_float(format f) {
    return f == format::bf16 || f == format::f16;
}

// Bytes of one unit of a row in the file.
size_t file_unit(const format_traits & t) {
    return size_t(t.n_unit / t.n_file_block * t.n_file_bytes);
}

// The place of a unit, given by its first column, of one panel.
size_t place(const matrix_shape & s, int64_t panel, int64_t k) {
    const int64_t k0 = k / n_chunk * n_chunk;
    return s.part(panel / n_panels, int(panel % n_panels), k0) +
           size_t((k - k0) / traits_of(s.f).n_unit) * size_t(traits_of(s.f).n_unit_bytes);
}

} // namespace

void pack_panel(const matrix_shape & s, int64_t panel, const uint8_t * const rows[n_lanes], uint8_t * packed) {
    const format_traits & t = traits_of(s.f);
    unit_row              u;
    for (int64_t k = 0; k < s.k; k += t.n_unit) {
        uint8_t *    to = packed + place(s, panel, k);
        const size_t at = size_t(k / t.n_unit) * file_unit(t);
        if (s.f == format::q6_k) {
            std::memset(to + 32, 0, 32);
        }
        for (int lane = 0; lane < n_lanes; ++lane) {
            const uint8_t * from = rows[lane];
            if (is_float(s.f)) {
                for (int i = 0; i < t.n_unit; ++i) {
                    uint8_t * x = to + float_place(s.f, i, lane);
                    from != nullptr ? std::memcpy(x, from + at + size_t(2 * i), 2) : std::memset(x, 0, 2);
                }
                continue;
            }
            if (from != nullptr) {
                read_unit(s.f, from + at, u);
            } else {
                std::memset(&u, 0, sizeof u);
            }
            put_unit(s.f, u, to, lane);
        }
    }
}

void unpack_row(const matrix_shape & s, const uint8_t * packed, int64_t row, uint8_t * out) {
    const format_traits & t    = traits_of(s.f);
    const int             lane = int(row % n_lanes);
    unit_row              u;
    for (int64_t k = 0; k < s.k; k += t.n_unit, out += file_unit(t)) {
        const uint8_t * from = packed + place(s, row / n_lanes, k);
        if (is_float(s.f)) {
            for (int i = 0; i < t.n_unit; ++i) {
                std::memcpy(out + 2 * i, from + float_place(s.f, i, lane), 2);
            }
            continue;
        }
        get_unit(s.f, u, from, lane);
        write_unit(s.f, u, out);
    }
}

void pack_matrix(const matrix_shape & s, const uint8_t * rows, size_t row_bytes, uint8_t * packed, int n_threads) {
    (void)n_threads; // without OpenMP
#pragma omp parallel for num_threads(n_threads) schedule(static) if (n_threads > 1 && s.panels() >= 64)
    for (int64_t panel = 0; panel < s.panels(); ++panel) {
        const uint8_t * from[n_lanes];
        for (int lane = 0; lane < n_lanes; ++lane) {
            const int64_t row = panel * n_lanes + lane;
            from[lane]        = row < s.n ? rows + size_t(row) * row_bytes : nullptr;
        }
        pack_panel(s, panel, from, packed);
    }
}

int threads_here() {
#if defined(_OPENMP)
    return omp_get_num_procs();
#else
    return 1;
#endif
}

} // namespace duo::cpu
