#include "utf8.h"

#include <algorithm>
#include <cstdint>

namespace duo {

namespace {

// Length of the character that starts at s[i] if the bytes there are a valid beginning of one; `n_have` of its bytes
// are present. 0: invalid, skip `n_have` bytes.
size_t utf8_next(const std::string & s, size_t i, size_t & n_have) noexcept {
    const auto byte = [&s](size_t k) { return uint8_t(s[k]); };
    const auto b    = byte(i);
    n_have          = 1;
    if (b < 0x80) {
        return 1;
    }
    const size_t n = b >= 0xc2 && b <= 0xdf ? 2 : b >= 0xe0 && b <= 0xef ? 3 : b >= 0xf0 && b <= 0xf4 ? 4 : 0;
    if (n == 0) {
        return 0;
    }
    for (; n_have < n && i + n_have < s.size(); ++n_have) {
        const uint8_t c  = byte(i + n_have);
        uint8_t       lo = 0x80;
        uint8_t       hi = 0xbf;
        if (n_have == 1) { // no overlong forms, surrogates, or code points above 10FFFF
            lo = b == 0xe0 ? 0xa0 : b == 0xf0 ? 0x90 : lo;
            hi = b == 0xed ? 0x9f : b == 0xf4 ? 0x8f : hi;
        }
        if (c < lo || c > hi) {
            return 0;
        }
    }
    return n;
}

} // namespace

size_t utf8_incomplete(const std::string & s) noexcept {
    for (size_t back = std::min<size_t>(3, s.size()); back >= 1; --back) {
        size_t       n_have = 0;
        const size_t n      = utf8_next(s, s.size() - back, n_have);
        if (n > back && n_have == back) {
            return back;
        }
    }
    return 0;
}

std::string utf8_valid(const std::string & s) {
    std::string out;
    out.reserve(s.size());
    for (size_t i = 0; i < s.size();) {
        size_t       n_have = 0;
        const size_t n      = utf8_next(s, i, n_have);
        if (n != 0 && n_have == n) {
            out.append(s, i, n);
        } else {
            out.append("\xef\xbf\xbd");
        }
        i += n_have;
    }
    return out;
}

} // namespace duo
