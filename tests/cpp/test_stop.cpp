// Stop strings against a naive reference: random texts over two letters, cut at random token borders.
#include "check.h"
#include "random.h"
#include "text/stop_matcher.h"

using namespace duo;
using namespace duo_test;

namespace {

std::string random_text(dice & d, uint32_t n_min, uint32_t n_max, uint32_t n_letters) {
    std::string s(n_min + d.below(n_max - n_min + 1), 'a');
    for (char & c : s) {
        c = char('a' + d.below(n_letters));
    }
    return s;
}

// Where the first stop string begins in all the text; npos: nowhere.
size_t first_stop(const std::string & text, const std::vector<std::string> & stops) {
    size_t first = std::string::npos;
    for (const std::string & s : stops) {
        first = std::min(first, text.find(s));
    }
    return first;
}

// The longest end of the text that a stop string, not yet complete, begins with.
size_t longest_prefix(const std::string & text, const std::vector<std::string> & stops) {
    for (size_t n = text.size(); n > 0; --n) {
        for (const std::string & s : stops) {
            if (s.size() > n && s.compare(0, n, text, text.size() - n, n) == 0) {
                return n;
            }
        }
    }
    return 0;
}

} // namespace

TEST(stop_random_texts) {
    int n_stopped = 0;
    for (uint64_t seed = 0; seed < 60000; ++seed) {
        dice                     d(seed);
        const uint32_t           n_letters = 2 + d.below(2);
        std::vector<std::string> stops(1 + d.below(3));
        for (std::string & s : stops) {
            s = random_text(d, 1, 8, n_letters);
        }
        stop_matcher m;
        m.begin({"old"});
        m.add("ol");
        m.begin(stops);
        std::string text;
        std::string shown;
        for (int k = 0; k < 40; ++k) {
            const std::string piece = random_text(d, 0, 1 + d.below(6), n_letters);
            text += piece;
            const auto   r     = m.add(piece);
            const size_t first = first_stop(text, stops);
            REQUIRE_EQ(r.stopped, first != std::string::npos, "seed " + std::to_string(seed));
            if (r.stopped) {
                CHECK_EQ(text.size() - r.n_drop, first);
                CHECK(first >= shown.size(), "text was shown that belongs to the stop string");
                ++n_stopped;
                break;
            }
            CHECK_EQ(r.n_hold, longest_prefix(text, stops));
            const std::string now = text.substr(0, text.size() - r.n_hold);
            CHECK(now.size() >= shown.size(), "what was shown cannot be held again");
            shown = now;
        }
    }
    CHECK(n_stopped > 10000);
}

TEST(stop_none) {
    stop_matcher m;
    m.begin({});
    const auto r = m.add("anything");
    CHECK(!r.stopped);
    CHECK_EQ(r.n_hold, 0u);
}

TEST(stop_long_text) {
    // The tail is trimmed again and again; a stop string over many pieces is found all the same.
    const std::string stop = "</answer>";
    stop_matcher      m;
    m.begin({stop, "\n\n\n"});
    for (int i = 0; i < 100000; ++i) {
        const auto r = m.add(i % 7 == 0 ? "</answer" : i % 7 == 1 ? " x\n\n" : "word");
        CHECK(!r.stopped);
        CHECK_EQ(r.n_hold, size_t(i % 7 == 0 ? 8 : i % 7 == 1 ? 2 : 0));
    }
    for (const char c : stop.substr(0, stop.size() - 1)) {
        CHECK(!m.add(std::string(1, c)).stopped);
    }
    const auto r = m.add("> and more");
    CHECK(r.stopped);
    CHECK_EQ(r.n_drop, stop.size() + 9);
}
