#include "extra_buffers.h"

#include <algorithm>
#include <atomic>
#include <string_view>

namespace duo::cpu {

namespace {

std::atomic<bool> allowed{true};

} // namespace

std::vector<ggml_backend_buffer_type_t> extra_buffers() {
    std::vector<ggml_backend_buffer_type_t> found;
    ggml_backend_dev_t                      cpu = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    if (cpu == nullptr) {
        return found;
    }
    auto all = reinterpret_cast<ggml_backend_dev_get_extra_bufts_t>(
        ggml_backend_reg_get_proc_address(ggml_backend_dev_backend_reg(cpu), "ggml_backend_dev_get_extra_bufts"));
    for (ggml_backend_buffer_type_t * b = all == nullptr ? nullptr : all(cpu); b != nullptr && *b != nullptr; ++b) {
        found.push_back(*b);
    }
    return found;
}

bool extra_buffers_allowed() {
    return allowed;
}

void allow_extra_buffers(bool yes) {
    allowed = yes;
}

std::vector<ggml_backend_buffer_type_t> allowed_extra_buffers() {
    return allowed ? extra_buffers() : std::vector<ggml_backend_buffer_type_t>();
}

ggml_backend_buffer_type_t allowed_amx_buffers() {
    const auto all   = allowed_extra_buffers();
    const auto found = std::find_if(all.begin(), all.end(), [](ggml_backend_buffer_type_t b) {
        return std::string_view(ggml_backend_buft_name(b)) == "AMX";
    });
    return found == all.end() ? nullptr : *found;
}

} // namespace duo::cpu
