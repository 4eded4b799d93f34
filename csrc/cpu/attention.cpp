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

constexpr int64_t n_rows_alone  = 32;       // rows times heads of a piece that one thread computes
constexpr int64_t n_cells_each  = 2048;     // of a thread: fewer are not worth the waits
constexpr int64_t n_scores_most = 16 << 20; // that all threads compute together

int64_t pieces(int64_t all, int64_t each) {
    return (all + each - 1) / each;
}

bool is_one_text(const attention & a) {
    return a.texts == nullptr || std::equal(a.texts + 1, a.texts + a.n_tokens, a.texts);
}

piece_size whole(const attention & a) {
    return {int(a.n_kv_heads), int(a.rows())};
}

// Rows of a head share the reading of its keys, and heads share pages. But every thread should get some pieces.
piece_size size_alone(const attention & a, int n_threads) {
    const int64_t n_pieces = n_threads > 1 ? 2 * n_threads : 1;
    piece_size    s{1, n_rows_together};
    while (s.n_rows > 1 && a.n_kv_heads * pieces(a.rows(), s.n_rows) < n_pieces) {
        s.n_rows /= 2;
    }
    const int64_t n_rows = std::min<int64_t>(s.n_rows, a.rows());
    while (2 * s.n_heads * n_rows <= n_rows_alone && s.n_heads < a.n_kv_heads &&
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

} // namespace

// One head's keys lie alone; several texts, and many rows of a head, have pieces enough. There, threads together would
// only wait for each other (benchmarks/README.md, "A long context").
bool attends_together(const attention & a, int n_threads) {
    const int64_t n_rows = a.n_kv_heads * a.rows();
    return n_threads > 1 && a.n_kv_heads > 1 && a.n_kv_heads <= n_sets_together && a.rows() <= n_rows_together &&
           is_one_text(a) && a.n_cells >= n_cells_each * n_threads && n_rows * a.n_cells <= n_scores_most &&
           a.n_kv_heads * a.n_v / n_columns_dealt >= n_threads;
}

void attention_team::wait() const {
#if defined(_OPENMP)
    if (n > 1) {
#pragma omp barrier
    }
#endif
}

void attend(const kernel_set & kernels, const attention & a, int n_threads, workspace & memory) {
    const bool        together = attends_together(a, n_threads);
    const piece_size  most     = together ? whole(a) : size_alone(a, n_threads);
    const memory_plan plan(a, most);
    auto * const base = reinterpret_cast<float *>(memory.reserve(plan.floats(n_threads, together) * sizeof(float)));
    std::atomic<int64_t> next{0};

    const auto take_some = [&](const attention_team & team) {
        const attention_memory of_thread = plan.of_thread(base, team.i, n_threads, together);
        if (together) {
            kernels.attend(a, {0, 0, most.n_heads, most.n_rows}, of_thread, team);
            return;
        }
        // Relaxed: the counter only distributes pieces.
        int64_t mine = next.fetch_add(1, std::memory_order_relaxed);
        int64_t i    = 0;
        each_piece(a, most, [&](const attention_piece & piece) {
            if (i++ == mine) {
                kernels.attend(a, piece, of_thread, {0, 1});
                mine = next.fetch_add(1, std::memory_order_relaxed);
            }
        });
    };
#if defined(_OPENMP)
    if (n_threads > 1) {
#pragma omp parallel num_threads(n_threads)
        take_some({omp_get_thread_num(), omp_get_num_threads()});
        return;
    }
#endif
    take_some({0, 1});
}

} // namespace duo::cpu
