#include "log_lines.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace duo {

namespace {

constexpr size_t n_lines_most = 4;
constexpr size_t n_bytes_most = 512; // of a line; the rest is left out

// No destructor: libllama may log while the thread ends.
struct lines {
    char   text[n_lines_most][n_bytes_most];
    size_t n;
    bool   in_error;
};

thread_local lines own{};

} // namespace

void keep_log_line(log_kind kind, const char * line) noexcept {
    own.in_error = kind == log_kind::error || (kind == log_kind::continued && own.in_error);
    if (own.in_error && own.n < n_lines_most) {
        const size_t n = std::min(std::strlen(line), n_bytes_most - 1);
        std::memcpy(own.text[own.n], line, n);
        own.text[own.n++][n] = '\0';
    }
}

void clear_log_lines() noexcept {
    own.n = 0;
}

std::string joined_log_lines() {
    std::string all;
    for (size_t i = 0; i < own.n; ++i) {
        // "function: what happened\n" -> "what happened"; later lines mostly say that the caller failed.
        const std::string line  = own.text[i];
        const size_t      colon = line.find(": ");
        const bool        named = colon != std::string::npos && line.find(' ') == colon + 1;
        std::string       text  = named ? line.substr(colon + 2) : line;
        if (text.starts_with("error loading model: ")) {
            text.erase(0, text.find(':') + 2);
        }
        std::replace(text.begin(), text.end(), '\n', ' ');
        text.erase(text.find_last_not_of(" .") + 1);
        if (!text.empty() && (all.empty() || !text.starts_with("failed to load model"))) {
            all += (all.empty() ? "" : "; ") + text;
        }
    }
    return all;
}

} // namespace duo
