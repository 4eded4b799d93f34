#include "read_ahead.h"

#include <algorithm>
#include <system_error>
#include <utility>

namespace duo {

namespace {
constexpr size_t n_at_once = size_t(16) << 20; // bytes between two looks whether to stop
}

read_ahead::read_ahead(std::vector<std::shared_ptr<const file_map>> files) {
    if (files.empty()) {
        return;
    }
    try {
        thread_ = std::thread([this, files = std::move(files)] {
            for (const auto & file : files) {
                for (size_t at = 0; at < file->size() && !stop_; at += n_at_once) {
                    if (!file->fill(at, std::min(n_at_once, file->size() - at))) {
                        return;
                    }
                }
            }
            all_ = !stop_;
        });
    } catch (const std::system_error &) { // no more threads: pages come when they are used
    }
}

bool read_ahead::finished() {
    if (thread_.joinable()) {
        thread_.join();
    }
    return all_;
}

read_ahead::~read_ahead() {
    stop_ = true;
    if (thread_.joinable()) {
        thread_.join();
    }
}

} // namespace duo
