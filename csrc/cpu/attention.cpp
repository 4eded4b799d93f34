#include "attention.h"

#include <algorithm>
#include <atomic>

#if defined(_OPENMP)
#include <omp.h>
#endif

#include "product.h"

namespace duo::cpu {

namespace {

// Rows per piece: more rows share the reading of keys, but every thread should get some pieces.
int rows_of_piece(const attention & a, int n_threads) {
    int n = n_rows_together;
    while (n > 1 && n_threads > 1 && a.n_kv_heads * ((a.rows() + n - 1) / n) < 2 * n_threads) {
        n /= 2;
    }
    return n;
}

void attend_some(const kernel_set & kernels, const attention & a, int n_rows, std::atomic<int64_t> & next,
                 float * scratch) {
    const int64_t n_pieces = (a.rows() + n_rows - 1) / n_rows;
    // Relaxed: the counter only distributes pieces.
    for (int64_t i = next.fetch_add(1, std::memory_order_relaxed); i < a.n_kv_heads * n_pieces;
         i         = next.fetch_add(1, std::memory_order_relaxed)) {
        const int64_t row0 = i % n_pieces * n_rows;
        kernels.attend(a, i / n_pieces, row0, int(std::min<int64_t>(n_rows, a.rows() - row0)), scratch);
    }
}

} // namespace

void attend(const kernel_set & kernels, const attention & a, int n_threads, workspace & memory) {
    const size_t         n_bytes = attention_scratch(a).bytes();
    const int            n_rows  = rows_of_piece(a, n_threads);
    std::atomic<int64_t> next{0};
#if defined(_OPENMP)
    if (n_threads > 1) {
        uint8_t * const scratch = memory.reserve(n_bytes * size_t(n_threads));
#pragma omp parallel num_threads(n_threads)
        attend_some(kernels, a, n_rows, next,
                    reinterpret_cast<float *>(scratch + n_bytes * size_t(omp_get_thread_num())));
        return;
    }
#endif
    attend_some(kernels, a, n_rows, next, reinterpret_cast<float *>(memory.reserve(n_bytes)));
}

} // namespace duo::cpu
