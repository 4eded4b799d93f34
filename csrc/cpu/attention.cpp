#include "attention.h"

#include <algorithm>
#include <atomic>

#if defined(_OPENMP)
#include <omp.h>
#endif

#include "product.h"

namespace duo::cpu {

namespace {

// How much a piece has at most, and whether the threads compute each piece together.
struct piece_size {
    int  n_heads, n_rows;
    bool together;
};

constexpr int64_t n_walkers     = 32;   // rows times heads of a piece that one thread computes
constexpr int64_t n_cells_long  = 1024; // from here on, threads that read the cache together win more than waits cost
constexpr int64_t n_scores_most = 8 << 20; // of a piece

int64_t pieces(int64_t all, int64_t each) {
    return (all + each - 1) / each;
}

// Rows of a head share the reading of its keys, and heads share pages. But every thread should get some pieces.
piece_size size_for(const attention & a, int n_threads) {
    const attention_piece whole{0, 0, int(a.n_kv_heads), int(a.rows())};
    if (n_threads > 1 && a.n_cells >= n_cells_long && whole.sets() <= n_sets_together &&
        a.n_kv_heads * a.rows() * a.n_cells <= n_scores_most) {
        return {whole.n_heads, whole.n_rows, true};
    }
    const int64_t n_pieces = n_threads > 1 ? 2 * n_threads : 1;
    piece_size    s{1, n_rows_together, false};
    while (s.n_rows > 1 && a.n_kv_heads * pieces(a.rows(), s.n_rows) < n_pieces) {
        s.n_rows /= 2;
    }
    const int64_t n_rows = std::min<int64_t>(s.n_rows, a.rows());
    while (2 * s.n_heads * n_rows <= n_walkers && s.n_heads < a.n_kv_heads &&
           pieces(a.n_kv_heads, 2 * s.n_heads) * pieces(a.rows(), s.n_rows) >= n_pieces) {
        s.n_heads *= 2;
    }
    return s;
}

// Where a team's memory lies: what its threads share, and after it what each has of its own. All in floats.
struct memory_plan {
    int64_t stride, scores, rows, shared, keys, own;

    memory_plan(const attention & a, const piece_size & most) {
        const int64_t n_rows = std::min<int64_t>(most.n_heads, a.n_kv_heads) * std::min<int64_t>(most.n_rows, a.rows());
        stride               = pieces(a.n_cells, n_cells_at_once) * n_cells_at_once;
        scores               = n_rows * stride;
        rows                 = n_rows * int64_t(sizeof(attention_row) / sizeof(float));
        shared               = pieces(scores + rows, 16) * 16;
        keys                 = n_cells_at_once * a.n_k;
        own                  = pieces(keys + stride + stride / 4, 16) * 16;
    }

    [[nodiscard]] size_t floats(int n_threads, bool together) const {
        return size_t((together ? 1 : n_threads) * shared + n_threads * own);
    }

    [[nodiscard]] attention_memory of_thread(float * memory, int i, int n_threads, bool together) const {
        float * const s = memory + (together ? 0 : i * shared);
        float * const o = memory + (together ? 1 : n_threads) * shared + i * own;
        auto * const  c = reinterpret_cast<int32_t *>(o + keys);
        return {s, stride, reinterpret_cast<attention_row *>(s + scores),
                o, c,      reinterpret_cast<uint8_t *>(c + stride)};
    }
};

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

// Computes the pieces that this thread of the team takes.
void attend_some(const kernel_set & kernels, const attention & a, const piece_size & most,
                 const attention_memory & memory, const attention_team & team, std::atomic<int64_t> & next) {
    if (most.together) {
        each_piece(a, most, [&](const attention_piece & piece) { kernels.attend(a, piece, memory, team); });
        return;
    }
    // Relaxed: the counter only distributes pieces.
    int64_t mine = next.fetch_add(1, std::memory_order_relaxed);
    int64_t i    = 0;
    each_piece(a, most, [&](const attention_piece & piece) {
        if (i++ == mine) {
            kernels.attend(a, piece, memory, {0, 1});
            mine = next.fetch_add(1, std::memory_order_relaxed);
        }
    });
}

} // namespace

void attention_team::wait() const {
#if defined(_OPENMP)
    if (n > 1) {
#pragma omp barrier
    }
#endif
}

void attend(const kernel_set & kernels, const attention & a, int n_threads, workspace & memory) {
    const piece_size  most = size_for(a, n_threads);
    const memory_plan plan(a, most);
    auto * const      base =
        reinterpret_cast<float *>(memory.reserve(plan.floats(n_threads, most.together) * sizeof(float)));
    std::atomic<int64_t> next{0};
#if defined(_OPENMP)
    if (n_threads > 1) {
#pragma omp parallel num_threads(n_threads)
        {
            const int i = omp_get_thread_num();
            attend_some(kernels, a, most, plan.of_thread(base, i, n_threads, most.together), {i, omp_get_num_threads()},
                        next);
        }
        return;
    }
#endif
    attend_some(kernels, a, most, plan.of_thread(base, 0, 1, most.together), {0, 1}, next);
}

} // namespace duo::cpu
