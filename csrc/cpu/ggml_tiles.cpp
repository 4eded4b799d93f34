#include "ggml_tiles.h"

#include "amx.h"

#if defined(DUO_AMX) && defined(__linux__)
#include <exception>
#include <mutex>
#include <string_view>
#include <thread>

#include "extra_buffers.h"
#include "ggml_product.h"
#include "kernel.h"
#include "team.h"
#endif

namespace duo::cpu {

#if defined(DUO_AMX) && defined(__linux__)
namespace {

// One product by ggml's AMX kernels, if this processor's ggml has them. Throws duo::error without memory.
void multiply_by_amx(ggml_backend_buffer_type_t amx) {
    constexpr ggml_type type      = GGML_TYPE_Q8_0;
    constexpr int64_t   n_columns = 256;
    constexpr int64_t   n_rows    = 64;
    constexpr int       width     = 16; // a single input is multiplied without tiles
    ggml_backend_dev_t  cpu       = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    ggml_product        p(amx, cpu, 1, type, n_columns, n_rows, width);
    if (p.can_run(cpu)) {
        p.set(std::vector<uint8_t>(size_t(n_rows) * ggml_row_size(type, n_columns)), gaussian(n_columns * width, 1));
        p.compute();
    }
}

// A new thread has what ggml configures, and nothing of any other library. Palette 0: ggml configures nothing.
tile_config made_by_ggml(ggml_backend_buffer_type_t amx) {
    tile_config        made{};
    std::exception_ptr failure;
    std::thread        thread([&] {
        try {
            multiply_by_amx(amx);
            wide_amx.save(made);
        } catch (...) {
            failure = std::current_exception();
        }
    });
    thread.join();
    if (failure) {
        std::rethrow_exception(failure);
    }
    return made;
}

} // namespace

void restore_ggml_tiles(int n_threads) {
    static std::once_flag learned;
    static tile_config    made{};
    if (!may_use_amx()) {
        return;
    }
    const ggml_backend_buffer_type_t amx = allowed_amx_buffers();
    if (amx == nullptr) {
        return;
    }
    try {
        std::call_once(learned, [amx] { made = made_by_ggml(amx); });
    } catch (const std::exception &) {
        return; // too little memory: the next computation tries again
    }
    if (made.palette != 0) {
        on_team(n_threads, [] { wide_amx.load(made); });
    }
}
#else
void restore_ggml_tiles(int) {
}
#endif

} // namespace duo::cpu
