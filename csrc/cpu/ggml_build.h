// Identifies a build of llama.cpp, and tells whether two builds come from the same source.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace duo::cpu {

struct ggml_build {
    std::string commit;  // ggml_commit(): "0c1e570", "0c1e570-dirty"; "unknown" if built without git
    std::string version; // ggml_version()
    std::string release; // of llama-cpp-python; empty: unknown
};

// The hexadecimal digits of a commit, without git's suffix for the work tree; empty: unknown.
inline std::string_view commit_digits(std::string_view commit) {
    commit            = commit.substr(0, commit.find('-'));
    const bool is_hex = std::all_of(commit.begin(), commit.end(),
                                    [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
    return is_hex && commit.size() >= 7 ? commit : std::string_view(); // git writes 7 or more
}

// Describes the build in error messages.
inline std::string description(const ggml_build & b) {
    const std::string_view commit = commit_digits(b.commit);
    return "ggml " + b.version + ", commit " + (commit.empty() ? "unknown" : b.commit) +
           (b.release.empty() ? "" : ", of llama-cpp-python " + b.release);
}

// The commit decides; one side may have more digits of it. If a side does not know the commit, the release decides. If
// that is unknown too, the builds count as different.
inline bool same_source(const ggml_build & a, const ggml_build & b) {
    const std::string_view x = commit_digits(a.commit);
    const std::string_view y = commit_digits(b.commit);
    if (a.version != b.version) {
        return false;
    }
    return x.empty() || y.empty() ? !a.release.empty() && a.release == b.release : x.starts_with(y) || y.starts_with(x);
}

} // namespace duo::cpu
