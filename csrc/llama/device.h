// The devices that a model may be placed on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ggml-backend.h>

namespace duo {

struct device_info {
    std::string name;        // "CUDA0"
    std::string description; // "NVIDIA H200"
    std::string type;        // "gpu", "igpu", "cpu", "accel", "rpc"
    uint64_t    n_free  = 0; // bytes
    uint64_t    n_total = 0;
    std::string id; // of the hardware, as a PCI address; empty: unknown
};

// All registered devices, CPU and accelerators included.
std::vector<device_info> list_devices();

// As in device_info.
const char * type_name(ggml_backend_dev_t dev);

// NULL-terminated list for llama_model_params.devices. No names: as libllama chooses (llama.cpp: the GPUs, without
// those that another backend has listed already; if there are none, the integrated GPUs), but no RPC device (otherwise
// every model would use a registered RPC server). "none": no device, the CPU alone. Throws duo::error for an unknown
// name.
std::vector<ggml_backend_dev_t> resolve_devices(const std::vector<std::string> & names);

} // namespace duo
