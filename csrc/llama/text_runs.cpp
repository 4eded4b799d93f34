#include "text_runs.h"

#include <algorithm>
#include <mutex>
#include <string>

#include "base/deep_stack.h"
#include "base/error.h"

namespace duo {

namespace {

// A frame of std::regex has about 400 bytes with -O3 and 800 without. Threads have 8 MiB, those of macOS 512 KiB.
constexpr size_t n_stack_a_byte = 1024;
#if defined(__APPLE__)
constexpr size_t n_run_ordinary = 160;
#else
constexpr size_t n_run_ordinary = 2048;
#endif
constexpr size_t n_run_long = size_t(64) << 10;
constexpr size_t n_run_most = size_t(1) << 20; // it may take 400 MB

// Only one text at a time takes so much.
std::mutex long_runs;

bool is_space(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

// EXAONE MoE's words have single spaces in them.
bool divides(std::string_view text, size_t i) {
    const bool within =
        text[i] == ' ' && i > 0 && !is_space(text[i - 1]) && i + 1 < text.size() && !is_space(text[i + 1]);
    return is_space(text[i]) && !within;
}

} // namespace

size_t longest_run(std::string_view text) {
    size_t longest = 0;
    size_t begin   = 0;
    for (size_t i = 1; i <= text.size(); ++i) {
        if (i == text.size() || divides(text, i) != divides(text, begin)) {
            longest = std::max(longest, i - begin);
            begin   = i;
        }
    }
    return longest;
}

void with_stack_for(size_t longest_run, const std::function<void()> & read) {
    if (longest_run <= n_run_ordinary) {
        return read();
    }
    if (longest_run > n_run_most) {
        throw error(error_kind::bad_value, "a part of the text has " + std::to_string(longest_run) +
                                               " bytes without a line end, " + std::to_string(n_run_most) +
                                               " at most can be read; break it into lines");
    }
    std::unique_lock one(long_runs, std::defer_lock);
    if (longest_run > n_run_long) {
        one.lock();
    }
    // A match may have spaces before and after a run.
    on_deep_stack((size_t(1) << 20) + 3 * longest_run * n_stack_a_byte, read);
}

} // namespace duo
