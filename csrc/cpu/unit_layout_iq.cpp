// Where the numbers of a row lie in a unit of a codebook's points: see codebook.h.
#include <cstring>

#include "codebook.h"
#include "unit_layout.h"

namespace duo::cpu {

namespace {

// The bit in which a row's byte i % 4 of signs holds the sign of column i of a block. Vectors of entries take it with
// one shift (codebook.h).
int sign_bit(const codebook_layout & l, int i) {
    return l.n_columns == 8 ? 3 - i / 8 + i % 8 / 4 * 4 : i / 4;
}

} // namespace

void put_unit_iq(format f, const unit_row & u, uint8_t * p, int lane) {
    const codebook_layout l = codebook_layout_of(f);
    std::memcpy(p + 2 * lane, u.d, 2);
    for (int j = 0; j < l.n_scales / 2; ++j) {
        p[64 + 16 * j + lane] = uint8_t(u.scales[j] | (u.scales[j + l.n_scales / 2] << 4));
    }
    const int n_high = l.n_high * l.n_entries();
    for (int i = 0; i < n_high; i += 8) {
        p[l.high_at() + 2 * i + lane] = 0;
    }
    for (int i = 0; i < n_high; i += l.n_high) {
        p[l.high_at() + i / 8 * 16 + lane] |= uint8_t((u.indices[i / l.n_high] >> 8) << (i % 8));
    }
    for (int b = 0; b < 8; ++b) {
        uint8_t * const block    = p + l.n_head() + b * l.n_block();
        uint8_t         signs[4] = {};
        for (int i = 0; i < 32; ++i) {
            signs[i % 4] |= uint8_t(((u.signs[4 * b + i / 8] >> (i % 8)) & 1) << sign_bit(l, i));
        }
        std::memcpy(block + 4 * lane, signs, 4);
        const int n = l.n_entries() / 8;
        for (int i = 0; i < n; ++i) {
            block[64 + i / 4 * 64 + 4 * lane + i % 4] = uint8_t(u.indices[b * n + i] & 255);
        }
    }
}

void get_unit_iq(format f, unit_row & u, const uint8_t * p, int lane) {
    const codebook_layout l = codebook_layout_of(f);
    std::memcpy(u.d, p + 2 * lane, 2);
    for (int j = 0; j < l.n_scales; ++j) {
        u.scales[j] = (p[64 + 16 * (j % (l.n_scales / 2)) + lane] >> (j < l.n_scales / 2 ? 0 : 4)) & 15;
    }
    for (int b = 0; b < 8; ++b) {
        const uint8_t * const block = p + l.n_head() + b * l.n_block();
        const uint8_t * const signs = block + 4 * lane;
        std::memset(u.signs + 4 * b, 0, 4);
        for (int i = 0; i < 32; ++i) {
            u.signs[4 * b + i / 8] |= uint8_t(((signs[i % 4] >> sign_bit(l, i)) & 1) << (i % 8));
        }
        const int n = l.n_entries() / 8;
        for (int i = 0; i < n; ++i) {
            const int at   = (b * n + i) * l.n_high;
            const int high = (p[l.high_at() + at / 8 * 16 + lane] >> (at % 8)) & ((1 << l.n_high) - 1);
            u.indices[b * n + i] =
                uint16_t(block[64 + i / 4 * 64 + 4 * lane + i % 4] | (l.n_high == 0 ? 0 : high << 8));
        }
    }
}

} // namespace duo::cpu
