// The memory layout of weights for the kernels of this folder: the formats and their sizes.
//
// A matrix of `n` rows and `k` columns is cut into panels of 16 rows, one row per lane of a 512-bit register. Within a
// panel the rows are interleaved in groups of 4 codes (8-bit codes), 8 codes (4-bit codes, low and high half of a byte)
// or 2 floats. So one load reads the same four columns of 16 rows, and one broadcast reads the four inputs that belong
// to them. Scales come before their codes. The bytes are those of the GGUF file in another order: nothing is rounded.
//
// 16 panels form a block. The columns of a block are stored in chunks of 1,024. The inputs of one chunk stay in the
// first-level cache for all panels, and a thread still reads its weights as one sequential stream.
#pragma once

#include <cstddef>
#include <cstdint>

namespace duo::cpu {

constexpr int n_lanes      = 16;   // rows of a panel
constexpr int n_panels     = 16;   // panels of a block
constexpr int n_chunk      = 1024; // columns of a chunk
constexpr int n_width_most = 8;    // most inputs that a kernel takes at once

enum class format : uint8_t {
    q8_0,
    q4_0,
    q4_1,
    q5_0,
    q5_1,
    iq4_nl,
    mxfp4,
    q2_k,
    q3_k,
    q4_k,
    q5_k,
    q6_k,
    iq4_xs,
    iq2_xxs,
    iq2_xs,
    iq2_s,
    iq3_xxs,
    iq3_s,
    iq1_s,
    iq1_m,
    tq1_0,
    tq2_0,
    bf16,
    f16,
    f32
};
constexpr int n_formats = 25;

// How the inputs of a product are prepared. Integer kinds have 8-bit codes, a scale for each group of inputs, and the
// start of each block's integer sum, which removes the offset that makes the weight's code unsigned.
enum class input_kind : uint8_t {
    q8_full, // a scale per 32 inputs, as stock's Q8_0; start -128 * sum of 32, for codes of 8 bits: Q8_0, IQ4_NL
    q8_four, // the same; start -8 * sum, for codes of 4 bits: Q4_0
    q8_five, // the same; start -16 * sum, for codes of 5 bits: Q5_0, MXFP4
    q8_sums, // a scale per 32, and the scaled sum of 32, as stock's Q8_1, for blocks with a minimum: Q4_1, Q5_1
    q8_k,    // a scale per 256, as stock's Q8_K; start -32 * sum of 16 for Q6_K, sums of 32 in pairs for Q4_K's minima
    q8_k_full, // a scale per 256; start -128 * sum of 32, for codes of 8 bits: IQ4_XS; others divide it
    bf16,      // pairs
    f32,
};
constexpr int n_input_kinds = 8;

struct format_traits {
    const char * name;
    int          n_unit;       // columns of a unit, the smallest part of a panel
    int          n_unit_bytes; // of 16 rows
    int          n_file_block; // columns of a block in the file
    int          n_file_bytes; // bytes of this block
    input_kind   input;
};

constexpr format_traits traits[n_formats] = {
    {"q8_0", 64, 1088, 32, 34, input_kind::q8_full},  //
    {"q4_0", 64, 576, 32, 18, input_kind::q8_four},   //
    {"q4_1", 64, 640, 32, 20, input_kind::q8_sums},   //
    {"q5_0", 64, 704, 32, 22, input_kind::q8_five},   //
    {"q5_1", 64, 768, 32, 24, input_kind::q8_sums},   //
    {"iq4_nl", 64, 576, 32, 18, input_kind::q8_full}, //
    {"mxfp4", 64, 576, 32, 17, input_kind::q8_five},  // a scale has two bytes here and one in the file
    {"q2_K", 256, 1344, 256, 84, input_kind::q8_k},   //
    {"q3_K", 256, 1856, 256, 110, input_kind::q8_k},  // scales of 8 bits here and of 6 in the file
    {"q4_K", 256, 2304, 256, 144, input_kind::q8_k},  //
    {"q5_K", 256, 2816, 256, 176, input_kind::q8_k},  //
    {"q6_K", 256, 3392, 256, 210, input_kind::q8_k},  // 32 bytes more than in the file: units keep whole cache lines
    {"iq4_xs", 256, 2240, 256, 136, input_kind::q8_k_full}, // scales of 8 bits here and of 6 in the file
    // Those of codebooks have eight signs in a byte here, also if the file has seven of them, and whole cache lines.
    {"iq2_xxs", 256, 1152, 256, 66, input_kind::q8_k_full}, //
    {"iq2_xs", 256, 1280, 256, 74, input_kind::q8_k},       //
    {"iq2_s", 256, 1344, 256, 82, input_kind::q8_k},        //
    {"iq3_xxs", 256, 1664, 256, 98, input_kind::q8_k_full}, //
    {"iq3_s", 256, 1792, 256, 110, input_kind::q8_k_full},  //
    {"iq1_s", 256, 832, 256, 50, input_kind::q8_k_full},    //
    {"iq1_m", 256, 960, 256, 56, input_kind::q8_k},         //
    {"tq1_0", 256, 896, 256, 54, input_kind::q8_k_full},    //
    {"tq2_0", 256, 1088, 256, 66, input_kind::q8_k_full},   //
    {"bf16", 64, 2048, 1, 2, input_kind::bf16},             //
    {"f16", 64, 2048, 1, 2, input_kind::f32},               //
    {"f32", 64, 4096, 1, 4, input_kind::f32},               //
};

constexpr const format_traits & traits_of(format f) {
    return traits[int(f)];
}

constexpr bool has_codebook(format f) {
    return f >= format::iq2_xxs && f <= format::iq1_m;
}

// The layout of a packed matrix. n: rows; k: columns, a multiple of n_unit.
struct matrix_shape {
    format  f;
    int64_t n;
    int64_t k;

    [[nodiscard]] int64_t panels() const { return (n + n_lanes - 1) / n_lanes; }
    [[nodiscard]] int64_t blocks() const { return (panels() + n_panels - 1) / n_panels; }
    [[nodiscard]] int     panels_in(int64_t block) const {
        const int64_t left = panels() - block * n_panels;
        return int(left < n_panels ? left : n_panels);
    }
    [[nodiscard]] size_t panel_bytes() const {
        return size_t(k / traits_of(f).n_unit) * size_t(traits_of(f).n_unit_bytes);
    }
    [[nodiscard]] size_t bytes() const { return size_t(panels()) * panel_bytes(); }

    // Offset of the part of panel `p` of `block` that holds the columns from `k0`, the first of a chunk.
    [[nodiscard]] size_t part(int64_t block, int p, int64_t k0) const {
        const int64_t n_k = k - k0 < n_chunk ? k - k0 : n_chunk;
        return size_t(block) * n_panels * panel_bytes() +
               (size_t(panels_in(block)) * size_t(k0) + size_t(p) * size_t(n_k)) / size_t(traits_of(f).n_unit) *
                   size_t(traits_of(f).n_unit_bytes);
    }
};

} // namespace duo::cpu
