// The files of a model as libllama has mapped them: whether they can still be read.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/watched_pages.h"

namespace duo {

class mapped_files {
  public:
    // Watches what this process has mapped of these files now. Linux alone tells; elsewhere nothing is watched. The
    // mappings must outlive it.
    explicit mapped_files(const std::vector<std::string> & paths);

    // The first of which a page could not be read; empty: none.
    [[nodiscard]] std::string lost() const;

  private:
    struct part {
        std::string                          path;
        std::unique_ptr<const watched_pages> pages;
    };
    std::vector<part> parts_;
};

} // namespace duo
