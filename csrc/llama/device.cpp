#include "device.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "base/error.h"
#include "failed_check.h"

namespace duo {

const char * type_name(ggml_backend_dev_t dev) {
    if (std::strcmp(ggml_backend_reg_name(ggml_backend_dev_backend_reg(dev)), "RPC") == 0) {
        return "rpc";
    }
    switch (ggml_backend_dev_type(dev)) {
        case GGML_BACKEND_DEVICE_TYPE_CPU:
            return "cpu";
        case GGML_BACKEND_DEVICE_TYPE_GPU:
            return "gpu";
        case GGML_BACKEND_DEVICE_TYPE_IGPU:
            return "igpu";
        default:
            return "accel";
    }
}

namespace {

// The CPU gets the layers that no device holds. Accelerators (BLAS, duo's kernels) only help the CPU.
bool holds_layers(const std::string & type) {
    return type != "cpu" && type != "accel";
}

} // namespace

namespace {

// A GPU that is too full for its driver cannot be asked: it reports no memory.
device_info info_of(ggml_backend_dev_t dev) {
    ggml_backend_dev_props props{};
    try {
        const throwing_shortage checks;
        ggml_backend_dev_get_props(dev, &props);
    } catch (const std::runtime_error &) {
        props.memory_free = props.memory_total = 0;
    }
    return {.name        = ggml_backend_dev_name(dev),
            .description = ggml_backend_dev_description(dev),
            .type        = type_name(dev),
            .n_free      = props.memory_free,
            .n_total     = props.memory_total,
            .id          = props.device_id == nullptr ? "" : props.device_id};
}

// Asks no other device for its properties: an RPC server may be gone.
void add_local(std::vector<ggml_backend_dev_t> & devs, const char * type) {
    std::vector<std::string> ids;
    for (size_t i = 0; i < ggml_backend_dev_count(); ++i) {
        ggml_backend_dev_t dev = ggml_backend_dev_get(i);
        if (std::strcmp(type_name(dev), type) != 0) {
            continue;
        }
        const std::string id = info_of(dev).id;
        if (id.empty() || std::find(ids.begin(), ids.end(), id) == ids.end()) {
            devs.push_back(dev);
            ids.push_back(id);
        }
    }
}

} // namespace

std::vector<device_info> list_devices() {
    std::vector<device_info> all;
    for (size_t i = 0; i < ggml_backend_dev_count(); ++i) {
        all.push_back(info_of(ggml_backend_dev_get(i)));
    }
    return all;
}

std::vector<ggml_backend_dev_t> resolve_devices(const std::vector<std::string> & names) {
    std::vector<ggml_backend_dev_t> devs;
    if (names.empty()) {
        add_local(devs, "gpu");
        if (devs.empty()) {
            add_local(devs, "igpu");
        }
    } else if (!(names.size() == 1 && names[0] == "none")) {
        for (const std::string & name : names) {
            ggml_backend_dev_t dev = ggml_backend_dev_by_name(name.c_str());
            if (dev == nullptr || !holds_layers(type_name(dev))) {
                std::string known;
                for (const device_info & d : list_devices()) {
                    if (holds_layers(d.type)) {
                        known += (known.empty() ? "" : ", ") + d.name;
                    }
                }
                throw error(error_kind::bad_value,
                            "unknown device " + name + "; " +
                                (known.empty() ? "this build of llama-cpp-python supports the CPU only, so use none"
                                               : "choose from none, " + known));
            }
            devs.push_back(dev);
        }
    }
    devs.push_back(nullptr);
    return devs;
}

} // namespace duo
