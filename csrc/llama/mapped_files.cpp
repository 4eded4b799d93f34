#include "mapped_files.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>

#include "base/file_map.h"

namespace duo {

#if defined(__linux__)

namespace {

struct mapping {
    uintptr_t   begin = 0, end = 0;
    std::string access, device, inode;
};

// proc(5): "begin-end access offset device inode path".
std::optional<mapping> next_mapping(std::istream & maps) {
    std::string line;
    if (!std::getline(maps, line)) {
        return std::nullopt;
    }
    std::istringstream in(line);
    mapping            m;
    char               dash = 0;
    std::string        offset;
    in >> std::hex >> m.begin >> dash >> m.end >> m.access >> offset >> m.device >> m.inode;
    return m;
}

} // namespace

// A map of duo's own shows how the system names the file: some file systems have other numbers in stat(2).
std::vector<mapped_files::span> mapped_files::mappings(const std::string & path) {
    const file_map       probe(path, true);
    const auto           at = reinterpret_cast<uintptr_t>(probe.data());
    std::vector<mapping> all;
    std::string          device, inode;
    std::ifstream        maps("/proc/self/maps");
    while (const auto m = next_mapping(maps)) {
        if (at >= m->begin && at < m->end) {
            device = m->device;
            inode  = m->inode;
        } else if (m->access.starts_with("r-")) {
            all.push_back(*m);
        }
    }
    std::vector<span> found;
    for (const mapping & m : all) {
        if (m.device == device && m.inode == inode) {
            found.emplace_back(m.begin, m.end);
        }
    }
    return found;
}

#else

std::vector<mapped_files::span> mapped_files::mappings(const std::string &) {
    return {};
}

#endif

mapped_files::mapped_files(std::vector<std::string> paths) {
    for (std::string & path : paths) {
        std::vector<span> before = mappings(path);
        parts_.push_back({std::move(path), std::move(before)});
    }
}

void mapped_files::watch() {
    for (part & p : parts_) {
        for (const span & s : mappings(p.path)) {
            if (std::find(p.before.begin(), p.before.end(), s) == p.before.end()) {
                p.pages.push_back(
                    std::make_unique<const watched_pages>(reinterpret_cast<const void *>(s.first), s.second - s.first));
            }
        }
    }
}

std::string mapped_files::lost() const {
    const auto it = std::find_if(parts_.begin(), parts_.end(), [](const part & p) {
        return std::any_of(p.pages.begin(), p.pages.end(), [](const auto & pages) { return pages->lost(); });
    });
    return it == parts_.end() ? "" : it->path;
}

} // namespace duo
