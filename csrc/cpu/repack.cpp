#include "repack.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "file_block.h"
#include "unit_layout.h"

namespace duo::cpu {

namespace {

constexpr size_t n_worth_a_team = size_t(256) << 10; // bytes

// bf16 in pairs of columns, f16 and f32 column by column.
template <int n_bytes> size_t float_place(format f, int k, int lane) {
    return f == format::bf16 ? size_t(k / 2 * 64 + lane * 4 + k % 2 * 2) : size_t((k * n_lanes + lane) * n_bytes);
}

constexpr int n_float_unit                                = traits_of(format::f32).n_unit; // the same for all three
alignas(4) constexpr uint8_t no_numbers[n_float_unit * 4] = {};

template <int n_bytes> void put_numbers(format f, const uint8_t * row, uint8_t * unit, int lane) {
    for (int i = 0; i < n_float_unit; ++i) {
        std::memcpy(unit + float_place<n_bytes>(f, i, lane), row + i * n_bytes, n_bytes);
    }
}

template <int n_bytes> void get_numbers(format f, const uint8_t * unit, uint8_t * row, int lane) {
    for (int i = 0; i < n_float_unit; ++i) {
        std::memcpy(row + i * n_bytes, unit + float_place<n_bytes>(f, i, lane), n_bytes);
    }
}

bool is_float(format f) {
    return traits_of(f).n_file_block == 1;
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
        if (has_gap(s.f)) {
            std::memset(to + 32, 0, 32);
        }
        for (int lane = 0; lane < n_lanes; ++lane) {
            const uint8_t * from = rows[lane];
            if (is_float(s.f)) {
                const uint8_t * row = from == nullptr ? no_numbers : from + at;
                t.n_file_bytes == 2 ? put_numbers<2>(s.f, row, to, lane) : put_numbers<4>(s.f, row, to, lane);
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
            t.n_file_bytes == 2 ? get_numbers<2>(s.f, from, out, lane) : get_numbers<4>(s.f, from, out, lane);
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
void pack_matrices(const matrix_shape & s, int64_t n_matrices, const uint8_t * rows, size_t row_bytes, uint8_t * packed,
                   int n_threads, const convert_fn & convert) {
    const int64_t        n_all    = n_matrices * s.panels();
    const bool           small    = !convert && s.bytes() * size_t(n_matrices) < n_worth_a_team;
    const int            n_shares = small ? 1 : int(std::clamp<int64_t>(n_threads, 1, std::max<int64_t>(n_all, 1)));
    const size_t         n_row    = file_row(s);
    std::vector<float>   floats(convert ? size_t(n_shares) * size_t(s.k) : 0);
    std::vector<uint8_t> converted(convert ? size_t(n_shares) * n_lanes * n_row : 0);
#pragma omp parallel for num_threads(n_shares) schedule(static) if (n_shares > 1)
    for (int i = 0; i < n_shares; ++i) {
        for (int64_t at = n_all * i / n_shares; at < n_all * (i + 1) / n_shares; ++at) {
            const int64_t   matrix = at / s.panels();
            const int64_t   panel  = at % s.panels();
            const uint8_t * from[n_lanes];
            for (int lane = 0; lane < n_lanes; ++lane) {
                const int64_t row = panel * n_lanes + lane;
                from[lane]        = row < s.n ? rows + size_t(matrix * s.n + row) * row_bytes : nullptr;
                if (convert && row < s.n) {
                    uint8_t * const to = converted.data() + (size_t(i) * n_lanes + size_t(lane)) * n_row;
                    convert(from[lane], to, floats.data() + size_t(i) * size_t(s.k));
                    from[lane] = to;
                }
            }
            pack_panel(s, panel, from, packed + size_t(matrix) * s.bytes());
        }
    }
}

} // namespace duo::cpu
