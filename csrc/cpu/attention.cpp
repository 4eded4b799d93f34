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

// Calls piece(row0, n_rows) for pieces of at most n_most rows. A piece walks over all cells that one of its rows sees,
// so it holds rows of one text only.
template <class Piece> void each_piece(const attention & a, int n_most, Piece && piece) {
    for (int64_t token = 0; token < a.n_tokens;) {
        int64_t end = a.texts == nullptr ? a.n_tokens : token + 1;
        while (end < a.n_tokens && a.texts[end] == a.texts[token]) {
            ++end;
        }
        for (int64_t row = token * a.group(); row < end * a.group(); row += n_most) {
            piece(row, int(std::min<int64_t>(n_most, end * a.group() - row)));
        }
        token = end;
    }
}

void attend_some(const kernel_set & kernels, const attention & a, int n_most, std::atomic<int64_t> & next,
                 float * scratch) {
    // Relaxed: the counter only distributes pieces.
    int64_t mine = next.fetch_add(1, std::memory_order_relaxed);
    int64_t i    = 0;
    for (int64_t kv_head = 0; kv_head < a.n_kv_heads; ++kv_head) {
        each_piece(a, n_most, [&](int64_t row0, int n_rows) {
            if (i++ == mine) {
                kernels.attend(a, kv_head, row0, n_rows, scratch);
                mine = next.fetch_add(1, std::memory_order_relaxed);
            }
        });
    }
}

} // namespace

void attend(const kernel_set & kernels, const attention & a, int n_threads, workspace & memory) {
    const size_t         n_bytes = attention_scratch(a).bytes();
    const int            n_most  = rows_of_piece(a, n_threads);
    std::atomic<int64_t> next{0};
#if defined(_OPENMP)
    if (n_threads > 1) {
        uint8_t * const scratch = memory.reserve(n_bytes * size_t(n_threads));
#pragma omp parallel num_threads(n_threads)
        attend_some(kernels, a, n_most, next,
                    reinterpret_cast<float *>(scratch + n_bytes * size_t(omp_get_thread_num())));
        return;
    }
#endif
    attend_some(kernels, a, n_most, next, reinterpret_cast<float *>(memory.reserve(n_bytes)));
}

} // namespace duo::cpu
