#include "ggml_tiles.h"

#include "amx.h"

#if defined(DUO_AMX) && defined(__linux__)
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>

#include "extra_buffers.h"
#include "ggml_product.h"
#include "kernel.h"
#include "shortage.h"
#include "team.h"
#endif

namespace duo::cpu {

#if defined(DUO_AMX) && defined(__linux__)
namespace {

std::mutex        learning;
std::atomic<bool> learned{false}; // `made` does not change any more
tile_config       made{};         // palette 0: ggml configures nothing

// Lets ggml's AMX kernels compute a product and returns what they configure. Only on a new thread: on others ggml may
// have done so before. Throws without memory.
tile_config made_by_ggml(ggml_backend_buffer_type_t amx) {
    constexpr ggml_type type      = GGML_TYPE_Q8_0;
    constexpr int64_t   n_columns = 256;
    constexpr int64_t   n_rows    = 64;
    constexpr int       width     = 16; // a single input is multiplied without tiles
    const team_size     packing(1);     // otherwise a thread for each processor packs
    ggml_backend_dev_t  cpu = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    tile_config         c{};
    require_spare(); // ggml ends the process where its small objects have no memory
    ggml_product p(amx, cpu, 1, type, n_columns, n_rows, width);
    if (p.can_run(cpu)) {
        p.set(std::vector<uint8_t>(size_t(n_rows) * ggml_row_size(type, n_columns)), gaussian(n_columns * width, 1));
        wide_amx.load(c); // a new thread may have its creator's configuration
        p.compute();
        wide_amx.save(c);
    }
    return c;
}

} // namespace

bool learn_ggml_tiles() {
    const std::lock_guard lock(learning);
    if (learned || !may_use_amx()) {
        return true;
    }
    std::exception_ptr failure;
    try {
        const ggml_backend_buffer_type_t amx = allowed_amx_buffers();
        if (amx == nullptr) {
            return true;
        }
        std::thread([amx, &failure] {
            try {
                made = made_by_ggml(amx);
            } catch (...) {
                failure = std::current_exception();
            }
        }).join();
    } catch (const std::exception &) { // no thread, or no memory
        return false;
    }
    learned = !failure;
    return learned;
}

void restore_ggml_tiles(int n_threads) {
    if (learned && made.palette != 0) {
        on_team(n_threads, [] { wide_amx.load(made); });
    }
}
#else
bool learn_ggml_tiles() {
    return true;
}

void restore_ggml_tiles(int) {
}
#endif

} // namespace duo::cpu
