#include "memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

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
// cgroup-v1/memory.rst). The page cache counts as used, but the system can reclaim it, without its shared part: that is
// tmpfs and shared memory, which no file holds.
struct group_files {
    std::string root, controller, limit, used, pages, shared;
};
const group_files versions[] = {{"/sys/fs/cgroup", "", "memory.max", "memory.current", "file", "shmem"},
                                {"/sys/fs/cgroup/memory", "memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                                 "total_cache", "total_shmem"}};

// The path of this process's group below the root; empty: the root. In a container it may be the host's path.
std::string own_group(const std::string & root, const std::string & controller) {
    std::ifstream file(root + "/proc/self/cgroup");
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
uint64_t left_in_groups(const std::string & root) {
    uint64_t least = unknown;
    for (const group_files & v : versions) {
        for (std::string path = own_group(root, v.controller);; path.resize(path.rfind('/'))) {
            const std::string group = root + v.root + path + "/";
            const uint64_t    limit = number_after(group + v.limit);
            const uint64_t    used  = number_after(group + v.used);
            const uint64_t    pages = field(group + "memory.stat", v.pages);
            if (limit != unknown && used != unknown && pages != unknown) {
                const uint64_t shared = field(group + "memory.stat", v.shared); // older kernels do not tell it
                const uint64_t spare  = pages - (shared == unknown ? 0 : std::min(pages, shared));
                const uint64_t taken  = used - std::min(used, spare);
                least                 = std::min(least, limit - std::min(limit, taken));
            }
            if (path.find('/') == std::string::npos) {
                break;
            }
        }
    }
    return least;
}

} // namespace

uint64_t memory_available(const std::string & root) {
    const uint64_t kib    = field(root + "/proc/meminfo", "MemAvailable:");
    const uint64_t system = kib == unknown ? unknown : kib * 1024;
    return std::min(system, left_in_groups(root));
}

} // namespace duo
