#include "attention.h"

#include <algorithm>
#include <atomic>

#if defined(_OPENMP)
#include <omp.h>
#endif

#include "product.h"

namespace duo::cpu {

namespace {

// How much a piece has at most.
struct piece_size {
    int n_heads, n_rows;
};

// Rows of a head share the reading of its keys, and heads share pages. But every thread should get some pieces.
piece_size size_for(const attention & a, int n_threads) {
    const int64_t n_pieces = n_threads > 1 ? 2 * n_threads : 1;
    const auto    count    = [](int64_t all, int each) { return (all + each - 1) / each; };
    piece_size    s{1, n_rows_together};
    while (s.n_rows > 1 && a.n_kv_heads * count(a.rows(), s.n_rows) < n_pieces) {
        s.n_rows /= 2;
    }
    const auto n_rows = int(std::min<int64_t>(s.n_rows, a.rows()));
    while (2 * s.n_heads <= n_heads_together && 2 * s.n_heads * n_rows <= n_walkers && s.n_heads < a.n_kv_heads &&
           count(a.n_kv_heads, 2 * s.n_heads) * count(a.rows(), s.n_rows) >= n_pieces) {
        s.n_heads *= 2;
    }
    return s;
}

// Calls take(piece) for all pieces. A piece walks over all cells that one of its rows sees, so it holds rows of one
// text only.
template <class Take> void each_piece(const attention & a, piece_size most, Take && take) {
    for (int64_t token = 0; token < a.n_tokens;) {
        int64_t end = a.texts == nullptr ? a.n_tokens : token + 1;
        while (end < a.n_tokens && a.texts[end] == a.texts[token]) {
            ++end;
        }
        for (int64_t head = 0; head < a.n_kv_heads; head += most.n_heads) {
            const auto n_heads = int(std::min<int64_t>(most.n_heads, a.n_kv_heads - head));
            for (int64_t row = token * a.group(); row < end * a.group(); row += most.n_rows) {
                take({head, row, n_heads, int(std::min<int64_t>(most.n_rows, end * a.group() - row))});
            }
        }
        token = end;
    }
}

void attend_some(const kernel_set & kernels, const attention & a, piece_size most, std::atomic<int64_t> & next,
                 float * scratch) {
    // Relaxed: the counter only distributes pieces.
    int64_t mine = next.fetch_add(1, std::memory_order_relaxed);
    int64_t i    = 0;
    each_piece(a, most, [&](const attention_piece & piece) {
        if (i++ == mine) {
            kernels.attend(a, piece, scratch);
            mine = next.fetch_add(1, std::memory_order_relaxed);
        }
    });
}

} // namespace

void attend(const kernel_set & kernels, const attention & a, int n_threads, workspace & memory) {
    const size_t         n_bytes = attention_scratch(a).bytes();
    const piece_size     most    = size_for(a, n_threads);
    std::atomic<int64_t> next{0};
#if defined(_OPENMP)
    if (n_threads > 1) {
        uint8_t * const scratch = memory.reserve(n_bytes * size_t(n_threads));
#pragma omp parallel num_threads(n_threads)
        attend_some(kernels, a, most, next,
                    reinterpret_cast<float *>(scratch + n_bytes * size_t(omp_get_thread_num())));
        return;
    }
#endif
    attend_some(kernels, a, most, next, reinterpret_cast<float *>(memory.reserve(n_bytes)));
}

} // namespace duo::cpu
