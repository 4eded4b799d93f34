#include "repack.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "file_block.h"

namespace duo::cpu {

namespace {

uint32_t load32(const uint8_t * p) {
    uint32_t u;
    std::memcpy(&u, p, 4);
    return u;
}

void store32(uint8_t * p, uint32_t u) {
    std::memcpy(p, &u, 4);
}

// Offsets of the vectors of 4-bit codes in a unit. If n_high is 1, a vector of high bits follows after every n_vectors
// of them. Data that is read together is stored together; otherwise the hardware prefetcher sees two jumping streams.
struct nibble_place {
    int    n_vectors, n_high;
    size_t operator()(int i) const { return size_t(64 * (i + i / n_vectors * n_high)); }
};

// Pairs of four codes share four bytes. lane: the row's index in the panel.
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

// 6-bit scales and minima: the low four bits of both share a byte; the high bits of blocks j and j + 4 share another.
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
void put_high_bits(const unit_row & u, int n, int n_bits, uint8_t * h, size_t stride, int lane) {
    const int      n_groups = 8 / n_bits;
    const uint32_t mask     = n_bits == 1 ? 0x01010101 : 0x03030303;
    for (int b = 0; b < n / (4 * n_groups); ++b) {
        uint32_t v = 0;
        for (int g = 0; g < n_groups; ++g) {
            v |= ((load32(u.codes + 4 * (b * n_groups + g)) >> 4) & mask) << (n_bits * g);
        }
        store32(h + stride * size_t(b) + 4 * lane, v);
    }
}

void get_high_bits(unit_row & u, int n, int n_bits, const uint8_t * h, size_t stride, int lane) {
    const int      n_groups = 8 / n_bits;
    const uint32_t mask     = n_bits == 1 ? 0x01010101 : 0x03030303;
    for (int b = 0; b < n / (4 * n_groups); ++b) {
        const uint32_t v = load32(h + stride * size_t(b) + 4 * lane);
        for (int g = 0; g < n_groups; ++g) {
            uint8_t * c = u.codes + 4 * (b * n_groups + g);
            store32(c, load32(c) | (((v >> (n_bits * g)) & mask) << 4));
        }
    }
}

// Blocks of 32 with a minimum: the minima of both blocks of a unit come after their scales.
bool has_minima(format f) {
    return f == format::q4_1 || f == format::q5_1;
}

size_t codes_at(format f) {
    return has_minima(f) ? 128 : 64;
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
        case format::q4_1:
        case format::q5_0:
        case format::q5_1:
            for (int i = 0; i < (has_minima(f) ? 4 : 2); ++i) {
                std::memcpy(p + 32 * i + 2 * lane, u.d + 2 * i, 2);
            }
            put_nibbles(u, 64, p + codes_at(f), lane, {4, f == format::q4_1 ? 0 : 1});
            if (f != format::q4_1) {
                put_high_bits(u, 64, 1, p + codes_at(f) + 256, 320, lane);
            }
            break;
        case format::q4_k:
        case format::q5_k:
            std::memcpy(p + 2 * lane, u.d, 2);
            std::memcpy(p + 32 + 2 * lane, u.d + 2, 2);
            put_scales(u, p + 64, lane);
            put_nibbles(u, 256, p + 256, lane, {4, f == format::q5_k ? 1 : 0});
            if (f == format::q5_k) {
                put_high_bits(u, 256, 1, p + 512, 320, lane);
            }
            break;
        case format::q6_k:
            std::memcpy(p + 2 * lane, u.d, 2);
            for (int j = 0; j < 16; ++j) {
                p[64 + 16 * j + lane] = u.scales[j];
            }
            put_nibbles(u, 256, p + 320, lane, {2, 1});
            put_high_bits(u, 256, 2, p + 448, 192, lane);
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
        case format::q4_1:
        case format::q5_0:
        case format::q5_1:
            for (int i = 2; has_minima(f) && i < 4; ++i) {
                std::memcpy(u.d + 2 * i, p + 32 * i + 2 * lane, 2);
            }
            get_nibbles(u, 64, p + codes_at(f), lane, {4, f == format::q4_1 ? 0 : 1});
            if (f != format::q4_1) {
                get_high_bits(u, 64, 1, p + codes_at(f) + 256, 320, lane);
            }
            break;
        case format::q4_k:
        case format::q5_k:
            get_scales(u, p + 64, lane);
            get_nibbles(u, 256, p + 256, lane, {4, f == format::q5_k ? 1 : 0});
            if (f == format::q5_k) {
                get_high_bits(u, 256, 1, p + 512, 320, lane);
            }
            break;
        case format::q6_k:
            for (int j = 0; j < 16; ++j) {
                u.scales[j] = p[64 + 16 * j + lane];
            }
            get_nibbles(u, 256, p + 320, lane, {2, 1});
            get_high_bits(u, 256, 2, p + 448, 192, lane);
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

bool is_float(format f) {
    return f == format::bf16 || f == format::f16;
}

// The address of a panel's unit, given by its first column.
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

size_t file_row(const matrix_shape & s) {
    const format_traits & t = traits_of(s.f);
    return size_t(s.k / t.n_unit) * file_unit(t);
}

// All memory is allocated first: an exception must not leave a thread of the team.
void pack_matrix(const matrix_shape & s, const uint8_t * rows, size_t row_bytes, uint8_t * packed, int n_threads,
                 const convert_fn & convert) {
    const bool           small    = !convert && s.panels() < 64; // not worth a team
    const int            n_shares = small ? 1 : int(std::clamp<int64_t>(n_threads, 1, s.panels()));
    const size_t         n_row    = file_row(s);
    std::vector<float>   floats(convert ? size_t(n_shares) * size_t(s.k) : 0);
    std::vector<uint8_t> converted(convert ? size_t(n_shares) * n_lanes * n_row : 0);
#pragma omp parallel for num_threads(n_shares) schedule(static) if (n_shares > 1)
    for (int i = 0; i < n_shares; ++i) {
        for (int64_t panel = s.panels() * i / n_shares; panel < s.panels() * (i + 1) / n_shares; ++panel) {
            const uint8_t * from[n_lanes];
            for (int lane = 0; lane < n_lanes; ++lane) {
                const int64_t row = panel * n_lanes + lane;
                from[lane]        = row < s.n ? rows + size_t(row) * row_bytes : nullptr;
                if (convert && row < s.n) {
                    uint8_t * const to = converted.data() + (size_t(i) * n_lanes + size_t(lane)) * n_row;
                    convert(from[lane], to, floats.data() + size_t(i) * size_t(s.k));
                    from[lane] = to;
                }
            }
            pack_panel(s, panel, from, packed);
        }
    }
}

} // namespace duo::cpu
