// Which build of llama.cpp something was made for, and whether another is made of the same source.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace duo::cpu {

struct ggml_build {
    std::string commit;  // as ggml_commit() says: "0c1e570", "0c1e570-dirty"; "unknown" where it was made without git
    std::string version; // as ggml_version() says
    std::string release; // of the llama-cpp-python that brought it; empty: not known
};

// The hexadecimal digits of a commit, without what git adds of the work tree; empty: not known.
inline std::string_view commit_digits(std::string_view commit) {
    commit            = commit.substr(0, commit.find('-'));
    const bool is_hex = std::all_of(commit.begin(), commit.end(),
                                    [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
    return is_hex && commit.size() >= 7 ? commit : std::string_view(); // git writes 7 or more
}

// For a sentence.
inline std::string description(const ggml_build & b) {
    const std::string_view commit = commit_digits(b.commit);
    return "ggml " + b.version + ", commit " + (commit.empty() ? "unknown" : b.commit) +
           (b.release.empty() ? "" : ", of llama-cpp-python " + b.release);
}

// The commit decides, of which one side may know more digits. Where a side does not know it, the release does; where
// that is not known either, nothing says that the two are the same.
inline bool same_source(const ggml_build & a, const ggml_build & b) {
    const std::string_view x = commit_digits(a.commit);
    const std::string_view y = commit_digits(b.commit);
    if (a.version != b.version) {
        return false;
    }
    return x.empty() || y.empty() ? !a.release.empty() && a.release == b.release : x.starts_with(y) || y.starts_with(x);
}

} // namespace duo::cpu
