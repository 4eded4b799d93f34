// Whole characters only, and the replacement of invalid bytes (Unicode 16, 3.9, tables 3-7 to 3-11).
#include "base/utf8.h"
#include "check.h"
#include "random.h"

using namespace duo;
using namespace duo_test;

namespace {

const std::string bad = "\xef\xbf\xbd";

// Table 3-7, row by row.
size_t well_formed(const std::string & s, size_t i) {
    const auto b  = [&](size_t k) { return i + k < s.size() ? uint8_t(s[i + k]) : uint8_t(0); };
    const auto in = [&](size_t k, int lo, int hi) { return b(k) >= lo && b(k) <= hi; };
    if (in(0, 0x00, 0x7f)) {
        return 1;
    }
    if (in(0, 0xc2, 0xdf) && in(1, 0x80, 0xbf)) {
        return 2;
    }
    const struct {
        int    b0_lo, b0_hi, b1_lo, b1_hi;
        size_t n;
    } rows[] = {{0xe0, 0xe0, 0xa0, 0xbf, 3}, {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3},
                {0xee, 0xef, 0x80, 0xbf, 3}, {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4},
                {0xf4, 0xf4, 0x80, 0x8f, 4}};
    for (const auto & r : rows) {
        if (in(0, r.b0_lo, r.b0_hi) && in(1, r.b1_lo, r.b1_hi) && in(2, 0x80, 0xbf) &&
            (r.n == 3 || in(3, 0x80, 0xbf))) {
            return r.n;
        }
    }
    return 0;
}

// Some bytes after s[i..i+n) make it one well-formed character.
bool can_be_completed(const std::string & s, size_t i, size_t n) {
    for (const char * rest :
         {"\x80", "\x90", "\xa0", "\x80\x80", "\x90\x80", "\xa0\x80", "\x80\x80\x80", "\x90\x80\x80"}) {
        const std::string whole = s.substr(i, n) + rest;
        if (well_formed(whole, 0) == whole.size()) {
            return true;
        }
    }
    return false;
}

std::string reference(const std::string & s) {
    std::string out;
    for (size_t i = 0; i < s.size();) {
        if (const size_t n = well_formed(s, i); n > 0) {
            out += s.substr(i, n);
            i += n;
            continue;
        }
        size_t n = 1; // the maximal part that some character begins with
        while (n < 3 && i + n < s.size() && can_be_completed(s, i, n + 1)) {
            ++n;
        }
        out += bad;
        i += n;
    }
    return out;
}

size_t reference_incomplete(const std::string & s) {
    for (size_t n = std::min<size_t>(3, s.size()); n > 0; --n) {
        if (can_be_completed(s, s.size() - n, n)) {
            return n;
        }
    }
    return 0;
}

// Bytes that matter: the borders of every range.
std::string random_bytes(dice & d, uint32_t n) {
    static const std::string borders =
        "az\x7f\x80\x8f\x90\x9f\xa0\xbf\xc0\xc1\xc2\xdf\xe0\xe1\xec\xed\xee\xef\xf0\xf1\xf3\xf4\xf5\xff";
    std::string s;
    for (uint32_t i = 0; i < n; ++i) {
        s += d.chance(0.2)   ? char(d.below(256))
             : d.chance(0.5) ? char(0x80 + d.below(64))
                             : borders[d.below(uint32_t(borders.size()))];
    }
    return s;
}

} // namespace

TEST(utf8_examples) {
    CHECK_EQ(utf8_valid("h\xc3\xa9llo \xe2\x82\xac \xf0\x9f\x98\x80"),
             std::string("h\xc3\xa9llo \xe2\x82\xac \xf0\x9f\x98\x80"));
    CHECK_EQ(utf8_valid("\xc0\xaf"), bad + bad);           // overlong
    CHECK_EQ(utf8_valid("\xe0\x80\xaf"), bad + bad + bad); // overlong
    CHECK_EQ(utf8_valid("\xed\xa0\x80"), bad + bad + bad); // surrogate
    CHECK_EQ(utf8_valid("\xf4\x90\x80\x80"), bad + bad + bad + bad);
    CHECK_EQ(utf8_valid("\xe2\x82z"), bad + "z"); // one for a maximal part
    CHECK_EQ(utf8_valid("\xf0\x9f\x98"), bad);
    CHECK_EQ(utf8_valid("\xf0\x9f\x98\xf0\x9f\x98\x80"), bad + "\xf0\x9f\x98\x80");
    CHECK_EQ(utf8_valid(std::string("a\0b", 3)), std::string("a\0b", 3));
    CHECK_EQ(utf8_incomplete(""), 0u);
    CHECK_EQ(utf8_incomplete("a\xe2"), 1u);
    CHECK_EQ(utf8_incomplete("a\xe2\x82"), 2u);
    CHECK_EQ(utf8_incomplete("a\xe2\x82\xac"), 0u);
    CHECK_EQ(utf8_incomplete("\xf0\x9f\x98"), 3u);
    CHECK_EQ(utf8_incomplete("\xe0\x80"), 0u); // can never become a character
    CHECK_EQ(utf8_incomplete("\x80\x80"), 0u);
}

TEST(utf8_random_bytes) {
    dice d(1);
    for (int k = 0; k < 200000; ++k) {
        const std::string s = random_bytes(d, d.below(9));
        CHECK_EQ(utf8_valid(s), reference(s));
        CHECK_EQ(utf8_incomplete(s), reference_incomplete(s));
        const std::string once = utf8_valid(s);
        CHECK_EQ(utf8_valid(once), once);
    }
}

TEST(utf8_in_pieces) {
    // Given out piece by piece, with the incomplete end kept back, the text is the same as at once.
    dice d(2);
    for (int k = 0; k < 50000; ++k) {
        const std::string s = random_bytes(d, d.below(24));
        std::string       kept;
        std::string       out;
        for (size_t i = 0; i < s.size();) {
            const size_t n = std::min<size_t>(1 + d.below(4), s.size() - i);
            kept += s.substr(i, n);
            i += n;
            const size_t free = kept.size() - utf8_incomplete(kept);
            out += utf8_valid(kept.substr(0, free));
            kept.erase(0, free);
        }
        CHECK_EQ(out + utf8_valid(kept), utf8_valid(s));
    }
}
