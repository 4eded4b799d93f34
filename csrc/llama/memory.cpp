#include "memory.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <limits>

namespace duo {

namespace {

constexpr uint64_t unknown = std::numeric_limits<uint64_t>::max();

// The number after `name` in a file of "name number" lines.
uint64_t field(const std::string & path, const std::string & name) {
    std::ifstream file(path);
    std::string   word;
    uint64_t      x = 0;
    while (file >> word) {
        if (word == name && file >> x) {
            return x;
        }
    }
    return unknown;
}

uint64_t number_after(const std::string & path) {
    std::ifstream file(path);
    uint64_t      x = 0;
    return file >> x ? x : unknown; // "max" means no limit
}

// Where a version of control groups says what a group may take (Linux: admin-guide/cgroup-v2.rst and
// cgroup-v1/memory.rst). The page cache counts as used, but the system can reclaim it.
struct group_files {
    std::string root, controller, limit, used, pages;
};
const group_files versions[] = {
    {"/sys/fs/cgroup", "", "memory.max", "memory.current", "file"},
    {"/sys/fs/cgroup/memory", "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_cache"}};

// The path of this process's group below the root; empty: the root. In a container it may be the host's path.
std::string own_group(const std::string & controller) {
    std::ifstream file("/proc/self/cgroup");
    std::string   line; // number:controllers:path
    while (std::getline(file, line)) {
        const size_t a = line.find(':');
        const size_t b = line.find(':', a + 1);
        if (b != std::string::npos &&
            ("," + line.substr(a + 1, b - a - 1) + ",").find("," + controller + ",") != std::string::npos) {
            return line.substr(b + 1);
        }
    }
    return "";
}

// What the groups of this process leave it; unknown: there is no limit.
uint64_t left_in_groups() {
    uint64_t least = unknown;
    for (const group_files & v : versions) {
        for (std::string path = own_group(v.controller);; path.resize(path.rfind('/'))) {
            const std::string group = v.root + path + "/";
            const uint64_t    limit = number_after(group + v.limit);
            const uint64_t    used  = number_after(group + v.used);
            const uint64_t    pages = field(group + "memory.stat", v.pages);
            if (limit != unknown && used != unknown && pages != unknown) {
                const uint64_t taken = used - std::min(used, pages);
                least                = std::min(least, limit - std::min(limit, taken));
            }
            if (path.find('/') == std::string::npos) {
                break;
            }
        }
    }
    return least;
}

int64_t meta(const llama_model * model, const std::string & key, int64_t otherwise) {
    char text[32] = {};
    return llama_model_meta_val_str(model, key.c_str(), text, sizeof text) > 0 ? std::atoll(text) : otherwise;
}

} // namespace

uint64_t memory_available() {
    const uint64_t kib    = field("/proc/meminfo", "MemAvailable:");
    const uint64_t system = kib == unknown ? unknown : kib * 1024;
    return std::min(system, left_in_groups());
}

uint64_t cache_bytes(const llama_model * model, const std::string & arch, int64_t n_layer, uint64_t n_ctx,
                     int32_t n_gpu_layers, ggml_type k, ggml_type v) {
    const int64_t n_head = llama_model_n_head(model);
    if (n_head <= 0 || llama_model_is_recurrent(model) || llama_model_is_hybrid(model)) {
        return 0;
    }
    const auto     n_here  = uint64_t(n_gpu_layers < 0 ? 0 : std::max<int64_t>(0, n_layer - n_gpu_layers));
    const int64_t  n_embd  = llama_model_n_embd(model) / n_head;
    const int64_t  n_kv    = llama_model_n_head_kv(model);
    const auto     width_k = uint64_t(n_kv * meta(model, arch + ".attention.key_length", n_embd));
    const auto     width_v = uint64_t(n_kv * meta(model, arch + ".attention.value_length", n_embd));
    const uint64_t bytes   = width_k * ggml_type_size(k) / uint64_t(ggml_blck_size(k)) +
                           width_v * ggml_type_size(v) / uint64_t(ggml_blck_size(v));
    return n_here * n_ctx * bytes;
}

} // namespace duo
