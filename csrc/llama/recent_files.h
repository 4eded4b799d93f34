// What was read of files last, by the version of each file. It is for this process and safe for several threads.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#if defined(__unix__) || defined(__APPLE__)
#include <sys/stat.h>
#endif

namespace duo {

struct file_version {
    std::filesystem::path           path; // of the file itself, whatever links led to it
    uintmax_t                       n_bytes;
    std::filesystem::file_time_type written;
    std::array<int64_t, 4>          entry; // device, number, and when the system noted a change, which no tool sets

    bool operator==(const file_version &) const = default;
};

// A clock that counts in large ticks gives two versions of a file the same time. Files as new as this have no version.
constexpr std::chrono::seconds n_too_new(2);

// Zeros: it cannot be found, or this system has no such numbers.
inline std::array<int64_t, 4> entry_of(const std::filesystem::path & path) {
#if defined(__unix__) || defined(__APPLE__)
    struct stat s {};
    if (stat(path.c_str(), &s) == 0) {
#if defined(__APPLE__)
        const timespec & changed = s.st_ctimespec;
#else
        const timespec & changed = s.st_ctim;
#endif
        return {int64_t(s.st_dev), int64_t(s.st_ino), int64_t(changed.tv_sec), int64_t(changed.tv_nsec)};
    }
#endif
    return {};
}

// nullopt: the file has no version to be sure of.
inline std::optional<file_version> version_of(const std::string & path) {
    namespace fs = std::filesystem;
    std::error_code ec;
    file_version    v{fs::canonical(path, ec), 0, {}, {}};
    if (!ec) {
        v.n_bytes = fs::file_size(v.path, ec);
    }
    if (!ec) {
        v.written = fs::last_write_time(v.path, ec);
        v.entry   = entry_of(v.path);
    }
    return ec || fs::file_time_type::clock::now() - v.written < n_too_new ? std::nullopt : std::optional(v);
}

// What was asked for last comes first.
template <class T> class recent_files {
  public:
    // nullptr: it is not kept.
    std::shared_ptr<const T> find(const file_version & v) {
        const std::lock_guard lock(mutex_);
        const auto it = std::find_if(kept_.begin(), kept_.end(), [&](const auto & k) { return k.first == v; });
        if (it == kept_.end()) {
            return nullptr;
        }
        std::rotate(kept_.begin(), it, it + 1);
        return kept_.front().second;
    }

    // In place of another version of the file.
    void keep(const file_version & v, std::shared_ptr<const T> x) {
        forget(v.path);
        const std::lock_guard lock(mutex_);
        kept_.emplace(kept_.begin(), v, std::move(x));
        kept_.resize(std::min(kept_.size(), n_kept));
    }

    void forget(const std::filesystem::path & path) {
        const std::lock_guard lock(mutex_);
        std::erase_if(kept_, [&](const auto & k) { return k.first.path == path; });
    }

  private:
    static constexpr size_t n_kept = 8; // a pair, and the parts of its files

    std::mutex                                                     mutex_;
    std::vector<std::pair<file_version, std::shared_ptr<const T>>> kept_;
};

} // namespace duo
