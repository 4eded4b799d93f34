#include "mapped_files.h"

#include <cinttypes>
#include <cstdio>
#include <fstream>

#if defined(__linux__)
#include <sys/stat.h>
#include <sys/sysmacros.h>
#endif

namespace duo {

#if defined(__linux__)

// proc(5): "begin-end access offset major:minor inode path".
mapped_files::mapped_files(const std::vector<std::string> & paths) {
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
        uintptr_t     begin        = 0;
        uintptr_t     end          = 0;
        unsigned      major_number = 0;
        unsigned      minor_number = 0;
        unsigned long inode        = 0;
        char          access[5]    = {};
        if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " %4s %*x %x:%x %lu", &begin, &end, access,
                        &major_number, &minor_number, &inode) != 6 ||
            inode == 0 || access[1] == 'w' || watched_pages::watches(reinterpret_cast<const void *>(begin))) {
            continue;
        }
        for (const std::string & path : paths) {
            struct stat facts {};
            if (stat(path.c_str(), &facts) == 0 && facts.st_ino == inode && major(facts.st_dev) == major_number &&
                minor(facts.st_dev) == minor_number) {
                parts_.push_back(
                    {path, std::make_unique<const watched_pages>(reinterpret_cast<const void *>(begin), end - begin)});
            }
        }
    }
}

#else

mapped_files::mapped_files(const std::vector<std::string> &) {
}

#endif

std::string mapped_files::lost() const {
    for (const part & p : parts_) {
        if (p.pages->lost()) {
            return p.path;
        }
    }
    return {};
}

} // namespace duo
