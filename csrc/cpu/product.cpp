#include "product.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>

#if defined(_OPENMP)
#include <omp.h>
#endif

namespace duo::cpu {

namespace {

constexpr int n_tiles_most = 4; // tiles that use a block together, so their sums stay in a near cache

// A tile of a job, and its columns.
struct work_tile {
    tile           t;
    const column * columns;
};

struct work_job {
    const uint8_t *            weights;
    std::vector<work_tile>     tiles;
    std::span<const panel_run> only;
};

// Makes tiles of nearly equal width: 9 inputs become 5 and 4, not 8 and 1. If a job has enough inputs for a wide
// kernel, so has each tile.
std::vector<work_job> lay_out(const kernel_set & kernels, const matrix_shape & s, const std::vector<job> & jobs,
                              workspace & memory) {
    const input_kind      kind  = traits_of(s.f).input;
    size_t                bytes = 0;
    std::vector<work_job> all;
    for (const job & j : jobs) {
        const int n       = int(j.columns.size());
        const int most    = kernels.is_wide(s.f, n) ? n_wide_most : kernels.n_width;
        const int n_tiles = (n + most - 1) / most;
        work_job  w{j.weights, {}, j.only};
        for (int i = 0; i < n_tiles; ++i) {
            const int from  = int(int64_t(n) * i / n_tiles);
            const int width = int(int64_t(n) * (i + 1) / n_tiles) - from;
            w.tiles.push_back({tile{width, nullptr, nullptr, nullptr, nullptr, nullptr, 0}, j.columns.data() + from});
            bytes += layout_of(kind, s.k, width).bytes();
        }
        all.push_back(std::move(w));
    }
    uint8_t * p = memory.reserve(bytes);
    for (work_job & w : all) {
        for (work_tile & t : w.tiles) {
            t.t = tile_at(p, kind, s.k, t.t.width, read_ahead(s.f));
            p += layout_of(kind, s.k, t.t.width).bytes();
        }
    }
    return all;
}

// The part [i, i + 1) / n of a range.
struct share {
    int64_t from, to;
    share(int64_t size, int i, int n) : from(size * i / n), to(size * (i + 1) / n) {}
};

void prepare_inputs(const kernel_set & kernels, const matrix_shape & s, const std::vector<work_job> & jobs,
                    int i_thread, int n_threads) {
    const int64_t n_chunks = (s.k + n_chunk - 1) / n_chunk;
    int64_t       n        = 0;
    for (const work_job & w : jobs) {
        for (const work_tile & t : w.tiles) {
            n += t.t.width * n_chunks;
        }
    }
    const share mine(n, i_thread, n_threads);
    int64_t     at = 0;
    for (const work_job & w : jobs) {
        for (const work_tile & t : w.tiles) {
            const prepare_fn prepare = kernels.prepare_of(s.f, t.t.width);
            for (int c = 0; c < t.t.width; ++c) {
                for (int64_t chunk = 0; chunk < n_chunks; ++chunk, ++at) {
                    if (at >= mine.from && at < mine.to) {
                        prepare(t.columns[c].x, chunk * n_chunk, std::min(s.k, (chunk + 1) * n_chunk), c, t.t);
                    }
                }
            }
        }
    }
}

// A thread's tile registers while it multiplies. The destructor restores the configuration of another library.
class registers {
  public:
    explicit registers(const wide_kernels * wide) : wide_(wide) {}
    ~registers() {
        if (now_ != nullptr) {
            wide_->load(before_);
        }
    }
    registers(const registers &)             = delete;
    registers & operator=(const registers &) = delete;

    void configure(format f, int width) {
        const tile_config & c = wide_->config_of(f, width);
        if (now_ == nullptr) {
            wide_->save(before_);
        }
        if (now_ != &c) {
            wide_->load(c);
            now_ = &c;
        }
    }

  private:
    const wide_kernels * wide_;
    const tile_config *  now_ = nullptr;
    tile_config          before_{};
};

// Multiplies one piece with up to n_tiles_most tiles.
void multiply_piece(const kernel_set & kernels, const matrix_shape & s, const uint8_t * weights, const panel_run & rows,
                    const work_tile * tiles, int n_tiles, registers & regs) {
    alignas(64) float sums[n_tiles_most * n_panels * n_wide_most * n_lanes];
    const bool        is_wide = kernels.is_wide(s.f, tiles[0].t.width);
    const int         n_sums  = (is_wide ? n_wide_most : n_width_most) * n_lanes; // sums per panel
    const auto        acc     = [&](int i, int p) { return sums + (i * n_panels + p) * n_sums; };
    for (int i = 0; i < n_tiles; ++i) {
        std::memset(acc(i, rows.from), 0, size_t(rows.to - rows.from) * size_t(n_sums) * sizeof sums[0]);
    }
    const auto & fns = kernels.panel[int(s.f)];
    for (int64_t k = 0; k < s.k; k += n_chunk) {
        const int64_t n_k = std::min<int64_t>(n_chunk, s.k - k);
        for (int i = 0; i < n_tiles; ++i) {
            const tile &   t  = tiles[i].t;
            const panel_fn fn = is_wide ? kernels.wide->panel[int(s.f)] : fns[t.width - 1];
            if (is_wide) {
                regs.configure(s.f, t.width);
            }
            for (int p = rows.from; p < rows.to; ++p) {
                fn(weights + s.part(rows.block, p, k), t, k, n_k, acc(i, p));
            }
        }
    }
    const int64_t row0 = rows.block * n_panels * n_lanes;
    for (int i = 0; i < n_tiles; ++i) {
        for (int c = 0; c < tiles[i].t.width; ++c) {
            for (int p = rows.from; p < rows.to; ++p) {
                const int64_t row = row0 + p * n_lanes;
                std::memcpy(tiles[i].columns[c].y + row, acc(i, p) + c * n_lanes,
                            size_t(std::min<int64_t>(n_lanes, s.n - row)) * sizeof(float));
            }
        }
    }
}

// Panels per piece: whole blocks read fastest, but every thread should get several pieces.
int piece_size(const matrix_shape & s, size_t n_jobs, int n_threads) {
    int n = n_panels;
    while (n > 1 && n_threads > 1 && s.panels() * int64_t(n_jobs) < 4 * int64_t(n) * n_threads) {
        n /= 2;
    }
    return n;
}

// The panels that a thread takes at a time, by number: all of a job's, or those that it names.
struct pieces {
    int     n_piece; // panels
    int64_t n_in_block;
    int64_t n_in_job;

    pieces(const matrix_shape & s, const work_job & first, int n_panels_each)
        : n_piece(n_panels_each), n_in_block(n_panels / n_piece),
          n_in_job((first.only.empty() ? s.blocks() : int64_t(first.only.size())) * n_in_block) {}

    [[nodiscard]] panel_run of(const matrix_shape & s, const work_job & w, int64_t i) const {
        const int64_t   block = i / n_in_block;
        const panel_run whole = w.only.empty() ? panel_run{block, 0, s.panels_in(block)} : w.only[size_t(block)];
        const int       from  = whole.from + int(i % n_in_block) * n_piece;
        return {whole.block, from, std::min(from + n_piece, whole.to)};
    }
};

void multiply_some(const kernel_set & kernels, const matrix_shape & s, const std::vector<work_job> & jobs, int n_piece,
                   std::atomic<int64_t> & next) {
    if (jobs.empty()) {
        return;
    }
    const pieces  all(s, jobs.front(), n_piece);
    const int64_t n = all.n_in_job * int64_t(jobs.size());
    registers     regs(kernels.wide);
    // Relaxed: the counter only distributes pieces. The team's barrier published the inputs, and its end publishes the
    // sums.
    for (int64_t i = next.fetch_add(1, std::memory_order_relaxed); i < n;
         i         = next.fetch_add(1, std::memory_order_relaxed)) {
        const work_job & w    = jobs[size_t(i / all.n_in_job)];
        const panel_run  rows = all.of(s, w, i % all.n_in_job);
        for (size_t t = 0; t < w.tiles.size() && rows.from < rows.to; t += n_tiles_most) {
            multiply_piece(kernels, s, w.weights, rows, w.tiles.data() + t,
                           int(std::min<size_t>(n_tiles_most, w.tiles.size() - t)), regs);
        }
    }
}

// Relaxed: the bits of a product do not depend on this value.
std::atomic<int> & ahead_of(format f) {
    struct distance {
        std::atomic<int> n_bytes{n_ahead_usual};
    };
    static distance all[n_formats];
    return all[int(f)].n_bytes;
}

} // namespace

int read_ahead(format f) {
    return ahead_of(f).load(std::memory_order_relaxed);
}

void set_read_ahead(format f, int n_bytes) {
    ahead_of(f).store(std::clamp(n_bytes, 0, n_ahead_most), std::memory_order_relaxed);
}

uint8_t * workspace::reserve(size_t n) {
    if (n > size_) {
        data_.reset();
        size_    = 0;
        void * p = nullptr; // older macOS has no aligned_alloc
        if (posix_memalign(&p, 4096, (n + 4095) / 4096 * 4096) != 0) {
            throw std::bad_alloc();
        }
        data_.reset(p);
        size_ = n;
    }
    return static_cast<uint8_t *>(data_.get());
}

bool has_threads() {
#if defined(_OPENMP)
    return true;
#else
    return false;
#endif
}

void multiply(const kernel_set & kernels, const matrix_shape & s, const std::vector<job> & jobs, int n_threads,
              workspace & memory, bool prepared) {
    const std::vector<work_job> work    = lay_out(kernels, s, jobs, memory);
    const int                   n_piece = piece_size(s, jobs.size(), n_threads);
    std::atomic<int64_t>        next{0};
    if (n_threads <= 1) {
        if (!prepared) {
            prepare_inputs(kernels, s, work, 0, 1);
        }
        multiply_some(kernels, s, work, n_piece, next);
        return;
    }
#if defined(_OPENMP)
#pragma omp parallel num_threads(n_threads)
    {
        if (!prepared) {
            prepare_inputs(kernels, s, work, omp_get_thread_num(), omp_get_num_threads());
#pragma omp barrier
        }
        multiply_some(kernels, s, work, n_piece, next);
    }
#else
    multiply(kernels, s, jobs, 1, memory, prepared);
#endif
}

} // namespace duo::cpu
