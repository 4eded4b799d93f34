#include "gguf_handle.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "unpacked_file.h"

namespace duo {

namespace {

namespace fs = std::filesystem;

constexpr size_t n_kept = 8; // a pair, and the parts of its files

// A clock that counts in large ticks gives two versions of a file the same time. Files as new as this are not kept.
constexpr std::chrono::seconds n_too_new(2);

// A file that is replaced by one of the same size and time, as a tool can make it, passes for the old one.
struct file_version {
    fs::path           path; // of the file itself, whatever links led to it
    uintmax_t          n_bytes;
    fs::file_time_type written;

    bool operator==(const file_version &) const = default;
};

// nullopt: the file has no version to be sure of.
std::optional<file_version> version_of(const std::string & path) {
    std::error_code ec;
    file_version    v{fs::canonical(path, ec), 0, {}};
    if (!ec) {
        v.n_bytes = fs::file_size(v.path, ec);
    }
    if (!ec) {
        v.written = fs::last_write_time(v.path, ec);
    }
    return ec || fs::file_time_type::clock::now() - v.written < n_too_new ? std::nullopt : std::optional(v);
}

using shared_header = std::shared_ptr<const parsed_header>;

shared_header parse(const std::string & path) {
    parsed_header   h;
    ggml_context *  tensors = nullptr;
    shared_unpacked file;
    try {
        file = open_unpacked(path);
    } catch (const error &) { // check_model_file() says what is wrong
        return std::make_shared<const parsed_header>(std::move(h));
    }
    if (file != nullptr) {
        h.n_unpacked = file->size();
        h.values.reset(gguf_init_from_file_ptr(open_stream(file).get(), {.no_alloc = true, .ctx = &tensors}));
    } else {
        h.values.reset(gguf_init_from_file(path.c_str(), {.no_alloc = true, .ctx = &tensors}));
    }
    h.tensors.reset(tensors);
    return std::make_shared<const parsed_header>(std::move(h));
}

// The headers that were asked for last, the newest one first.
class recent_headers {
  public:
    shared_header find(const file_version & v) {
        const std::lock_guard lock(mutex_);
        const auto it = std::find_if(kept_.begin(), kept_.end(), [&](const auto & k) { return k.first == v; });
        if (it == kept_.end()) {
            return nullptr;
        }
        std::rotate(kept_.begin(), it, it + 1);
        return kept_.front().second;
    }

    void keep(const file_version & v, const shared_header & h) {
        forget(v.path);
        const std::lock_guard lock(mutex_);
        kept_.emplace(kept_.begin(), v, h);
        kept_.resize(std::min(kept_.size(), n_kept));
    }

    void forget(const fs::path & path) {
        const std::lock_guard lock(mutex_);
        std::erase_if(kept_, [&](const auto & k) { return k.first.path == path; });
    }

  private:
    std::mutex                                          mutex_;
    std::vector<std::pair<file_version, shared_header>> kept_;
};

recent_headers recent;

shared_header header_of(const std::string & path) {
    const std::optional<file_version> before = version_of(path);
    if (shared_header found = before ? recent.find(*before) : nullptr) {
        return found;
    }
    shared_header h = parse(path);
    if (before && h->values != nullptr && version_of(path) == before) {
        recent.keep(*before, h);
    }
    return h;
}

} // namespace

gguf_handle::gguf_handle(const std::string & path) : header_(header_of(path)) {
}

void forget_header(const std::string & path) {
    std::error_code ec;
    recent.forget(fs::canonical(path, ec));
}

} // namespace duo
