// Where the numbers of a row lie in a unit of a codebook's points: see codebook.h.
#include <cstring>

#include "codebook.h"
#include "unit_layout.h"

namespace duo::cpu {

namespace {

// Scales of four bits: those of the first half of a row have the lower bits.
void put_scales(const unit_row & u, int n, uint8_t * p, int lane) {
    for (int j = 0; j < n / 2; ++j) {
        p[16 * j + lane] = uint8_t(u.scales[j] | (u.scales[j + n / 2] << 4));
    }
}

void get_scales(unit_row & u, int n, const uint8_t * p, int lane) {
    for (int j = 0; j < n / 2; ++j) {
        u.scales[j]         = p[16 * j + lane] & 15;
        u.scales[j + n / 2] = p[16 * j + lane] >> 4;
    }
}

// IQ1: the upper bits of four indices, choices of an eighth, perhaps a scale.
void put_pairs_of_bytes(const unit_row & u, const codebook_layout & l, uint8_t * p, int lane) {
    for (int b = 0; b < 8; ++b) {
        int both = l.has_scales() ? 0 : u.scales[b] << 13;
        for (int i = 0; i < 4; ++i) {
            both |= (u.indices[4 * b + i] >> 8) << (3 * i);
            both |= l.has_scales() || i == 0 ? u.signs[4 * b + i] << (12 + i) : 0;
        }
        p[32 * b + 2 * lane]     = uint8_t(both & 255);
        p[32 * b + 2 * lane + 1] = uint8_t(both >> 8);
    }
}

void get_pairs_of_bytes(unit_row & u, const codebook_layout & l, const uint8_t * p, int lane) {
    for (int b = 0; b < 8; ++b) {
        const int both = p[32 * b + 2 * lane] | (p[32 * b + 2 * lane + 1] << 8);
        for (int i = 0; i < 4; ++i) {
            u.indices[4 * b + i] |= uint16_t(((both >> (3 * i)) & 7) << 8);
            u.signs[4 * b + i] = (both >> (12 + (l.has_scales() ? i : 0))) & 1;
        }
        if (!l.has_scales()) {
            u.scales[b] = uint8_t(both >> 13);
        }
    }
}

// Others: the upper bits of indices, in their order.
void put_high_bits(const unit_row & u, const codebook_layout & l, uint8_t * p, int lane) {
    for (int i = 0; i < l.n_entries(); ++i) {
        const int at   = i * l.n_high;
        uint8_t & byte = p[at / 8 * 16 + lane];
        byte           = uint8_t((at % 8 == 0 ? 0 : byte) | ((u.indices[i] >> 8) << (at % 8)));
    }
}

void get_high_bits(unit_row & u, const codebook_layout & l, const uint8_t * p, int lane) {
    for (int i = 0; i < l.n_entries(); ++i) {
        const int at = i * l.n_high;
        u.indices[i] |= uint16_t(((p[at / 8 * 16 + lane] >> (at % 8)) & ((1 << l.n_high) - 1)) << 8);
    }
}

// The bit in which a row's byte i % 4 of signs holds the sign of column i of a block. Vectors of entries take it with
// one shift.
int sign_bit(const codebook_layout & l, int i) {
    return l.n_columns == 8 ? 3 - i / 8 + i % 8 / 4 * 4 : i / 4;
}

void put_signs(const uint8_t * signs, const codebook_layout & l, uint8_t * p, int lane) {
    uint8_t bytes[4] = {};
    for (int i = 0; i < 32; ++i) {
        bytes[i % 4] |= uint8_t(((signs[i / 8] >> (i % 8)) & 1) << sign_bit(l, i));
    }
    std::memcpy(p + 4 * lane, bytes, 4);
}

void get_signs(uint8_t * signs, const codebook_layout & l, const uint8_t * p, int lane) {
    std::memset(signs, 0, 4);
    for (int i = 0; i < 32; ++i) {
        signs[i / 8] |= uint8_t(((p[4 * lane + i % 4] >> sign_bit(l, i)) & 1) << (i % 8));
    }
}

// The place of an index's lower byte in a unit.
size_t index_at(const codebook_layout & l, int i, int lane) {
    const int n = l.n_entries() / 8; // of a block
    return size_t(l.n_head() + i / n * l.n_block() + l.indices_at() + i % n / 4 * 64 + 4 * lane + i % 4);
}

} // namespace

void put_unit_iq(format f, const unit_row & u, uint8_t * p, int lane) {
    const codebook_layout l = codebook_layout_of(f);
    std::memcpy(p + 2 * lane, u.d, 2);
    if (l.has_scales()) {
        put_scales(u, l.n_scales, p + 64, lane);
    }
    if (!l.has_signs()) {
        put_pairs_of_bytes(u, l, p + l.high_at(), lane);
    } else if (l.n_high > 0) {
        put_high_bits(u, l, p + l.high_at(), lane);
    }
    for (int b = 0; l.has_signs() && b < 8; ++b) {
        put_signs(u.signs + 4 * b, l, p + l.n_head() + b * l.n_block(), lane);
    }
    for (int i = 0; i < l.n_entries(); ++i) {
        p[index_at(l, i, lane)] = uint8_t(u.indices[i] & 255);
    }
}

void get_unit_iq(format f, unit_row & u, const uint8_t * p, int lane) {
    const codebook_layout l = codebook_layout_of(f);
    std::memcpy(u.d, p + 2 * lane, 2);
    for (int i = 0; i < l.n_entries(); ++i) {
        u.indices[i] = p[index_at(l, i, lane)];
    }
    if (l.has_scales()) {
        get_scales(u, l.n_scales, p + 64, lane);
    }
    if (!l.has_signs()) {
        get_pairs_of_bytes(u, l, p + l.high_at(), lane);
    } else if (l.n_high > 0) {
        get_high_bits(u, l, p + l.high_at(), lane);
    }
    for (int b = 0; l.has_signs() && b < 8; ++b) {
        get_signs(u.signs + 4 * b, l, p + l.n_head() + b * l.n_block(), lane);
    }
}

} // namespace duo::cpu
