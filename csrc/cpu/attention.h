// Attention over a cache of half-precision keys and values. The order of sums does not depend on the number of rows, of
// threads, or of cells that a row does not see.
#pragma once

#include <cstddef>
#include <cstdint>

namespace duo::cpu {

// Distances in bytes.
struct attention_strides {
    size_t q_token, q_head, k_cell, k_head, v_cell, v_head, mask_token;
};

// Softmax over the cells that a row sees. A row is one head of one token.
struct attention {
    int64_t n_k, n_v; // columns of a key and of a value: multiples of 16
    int64_t n_cells, n_tokens, n_heads, n_kv_heads;

    const uint8_t *   q; // float
    const uint8_t *   k; // half
    const uint8_t *   v; // half
    attention_strides stride;

    const uint8_t * mask;  // half, [n_tokens][n_cells]; -infinity hides a cell; nullptr hides none
    const int32_t * order; // [n_cells], the cells in the order in which they are added; nullptr: as they lie
    const int32_t * texts; // [n_tokens], a number for each token's text; nullptr: one text
    const float *   sinks; // [n_heads], an additional score per head; nullptr: none

    float * out; // [n_tokens][n_heads][n_v]

    float scale;
    float softcap;  // scores become softcap * tanh(score / softcap); 0: unchanged
    float max_bias; // ALiBi's; 0: none

    [[nodiscard]] int64_t group() const { return n_heads / n_kv_heads; } // heads that share keys and values
    [[nodiscard]] int64_t rows() const { return n_tokens * group(); }    // rows per key head
};

constexpr int n_rows_together = 16; // rows of a key head that walk over the cells together
constexpr int n_sets_together = 64; // such sets of rows that do so
constexpr int n_cells_at_once = 16;
constexpr int n_columns_dealt = 16; // of values: a thread takes so many, or a multiple

// Rows [row, row + n_rows) of key heads [kv_head, kv_head + n_heads). Row = token * group() + head within the group.
struct attention_piece {
    int64_t kv_head, row;
    int     n_heads, n_rows;

    // How many sets of rows; at most n_sets_together.
    [[nodiscard]] int64_t sets() const { return n_heads * ((n_rows + n_rows_together - 1) / n_rows_together); }
};

struct attention_row {
    float most, sum; // the largest score; the sum of the weights
};

// What the threads of a piece share, and what each has of its own.
struct attention_memory {
    float *         scores; // [n_heads * n_rows][stride]
    int64_t         stride; // n_cells, rounded up to n_cells_at_once
    attention_row * rows;   // [n_heads * n_rows]

    float *   keys;  // own: [n_cells_at_once][n_k]
    int32_t * cells; // own: [n_cells]
    uint8_t * seen;  // own: [n_cells]
};

// The threads that compute a piece. Each of them calls the kernel.
struct attention_team {
    int i, n; // which one this is, of how many

    void wait() const; // until all have come here
};

using attend_fn = void (*)(const attention & a, const attention_piece & piece, const attention_memory & memory,
                           const attention_team & team);

class workspace;
struct kernel_set;

// Whether all threads compute all rows together. Otherwise each thread takes pieces of its own.
bool attends_together(const attention & a, int n_threads);

// Computes all rows with the caller's team of threads. Throws std::bad_alloc.
void attend(const kernel_set & kernels, const attention & a, int n_threads, workspace & memory);

} // namespace duo::cpu
