// The files of a model as libllama maps them: whether they can still be read.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/watched_pages.h"

namespace duo {

// Linux alone tells what is mapped. Elsewhere nothing is watched.
class mapped_files {
  public:
    // Before the model is loaded. Nobody else may map these files until watch().
    explicit mapped_files(std::vector<std::string> paths);
    // After that: watches what has been mapped of them meanwhile. These mappings must outlive it.
    void watch();

    // The first file of which a page could not be read; empty: none.
    [[nodiscard]] std::string lost() const;

  private:
    using span = std::pair<uintptr_t, uintptr_t>;
    struct part {
        std::string                                       path;
        std::vector<span>                                 before; // mapped by others
        std::vector<std::unique_ptr<const watched_pages>> pages{};
    };
    std::vector<part> parts_;

    static std::vector<span> mappings(const std::string & path);
};

} // namespace duo
