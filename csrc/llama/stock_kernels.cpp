#include "stock_kernels.h"

#include <atomic>
#include <cstdlib>

#include "base/error.h"
#include "model_file.h"
#include "weight_placement.h"

namespace duo {

namespace {

std::atomic<bool> computed{false}; // a model or a race in this process may have fixed ggml's choice

// Whether stock kernels would compute products that ggml tiles.
bool tiles(const model_options & o) {
    return uses_tiled_products(o.path) &&
           weight_placement(o.path, o.cpu_types, o.n_gpu_layers, o.override_tensors).n_stock() > 0;
}

} // namespace

void stock_kernels_used() {
    computed = true;
}

void prepare_stock_kernels(const model_options & target) {
    const char * tiled = std::getenv("GGML_CPU_TILED_MM");
    const bool   off   = tiled != nullptr && std::string(tiled) == "0";
    if (target.strict && target.flash_attn == "off" && target.n_gpu_layers == 0) {
        throw error(error_kind::bad_value, "--strict needs flash attention; leave out -fa off");
    }
    if (target.strict && !off && computed && tiles(target)) {
        throw error(error_kind::bad_value,
                    "--strict comes too late for the weights of " + target.path +
                        ": another model has run in this process; set GGML_CPU_TILED_MM=0 or start a new process");
    }
    if (target.strict && !computed) {
        setenv("GGML_CPU_TILED_MM", "0", 1);
    }
    computed = true;
}

} // namespace duo
