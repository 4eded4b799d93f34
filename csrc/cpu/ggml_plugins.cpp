#include "ggml_plugins.h"

#if defined(DUO_BUNDLED_LLAMA)
#include <dlfcn.h>

#include <stdexcept>
#include <string>

#include <ggml-backend.h>
#endif

namespace duo::cpu {

void load_plugins() {
#if defined(DUO_BUNDLED_LLAMA)
    Dl_info at{};
    if (ggml_backend_reg_count() > 0 || dladdr(reinterpret_cast<void *>(&ggml_backend_reg_count), &at) == 0) {
        return;
    }
    const std::string library = at.dli_fname;
    const std::string folder  = library.substr(0, library.rfind('/'));
    ggml_backend_load_all_from_path(folder.c_str()); // without a path ggml would look into the working directory
    if (ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU) == nullptr) {
        throw std::runtime_error("no libggml-cpu in " + folder + " can be loaded; install duo-llama again");
    }
#endif
}

} // namespace duo::cpu
