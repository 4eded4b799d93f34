// DRY finds what a slow search finds, for any row of a pass.
#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "check.h"
#include "model/dry.h"
#include "random.h"

using namespace duo;
using duo_test::dice;

namespace {

using tokens  = std::vector<token_id>;
using lengths = std::map<token_id, int32_t>;

// How many tokens the end of the text has since the last breaker that is complete. Of those that begin at the same
// token, the longest counts.
int32_t since_breaker(const tokens & text, const dry_breakers & breakers) {
    for (size_t begin = text.size(); begin-- > 0;) {
        int32_t end = -1;
        if (const auto found = breakers.find(text[begin]); found != breakers.end()) {
            for (const tokens & tail : found->second) {
                const size_t n = begin + 1 + tail.size();
                if (n <= text.size() && std::equal(tail.begin(), tail.end(), text.begin() + ptrdiff_t(begin) + 1)) {
                    end = std::max(end, int32_t(n));
                }
            }
        }
        if (end >= 0) {
            return int32_t(text.size()) - end;
        }
    }
    return int32_t(text.size());
}

// For each token, the longest suffix of the text that the token followed before.
lengths slow(const tokens & whole, const sampling_params & s, const dry_breakers & breakers) {
    const size_t n = s.dry_penalty_last_n < 0 ? whole.size() : size_t(s.dry_penalty_last_n);
    const tokens text(whole.end() - ptrdiff_t(std::min(n, whole.size())), whole.end());
    lengths      out;
    const auto   most = since_breaker(text, breakers);
    if (int32_t(text.size()) <= s.dry_allowed_length || most < s.dry_allowed_length) {
        return out;
    }
    for (size_t i = 1; i < text.size(); ++i) { // text[i] followed text[..i)
        int32_t same = 0;
        while (same < most && size_t(same) < i && text[i - 1 - size_t(same)] == text[text.size() - 1 - size_t(same)]) {
            ++same;
        }
        if (same >= s.dry_allowed_length) {
            const auto found = breakers.find(text[i]);
            const bool alone =
                found != breakers.end() && std::count(found->second.begin(), found->second.end(), tokens{});
            if (!alone) {
                out[text[i]] = std::max(out[text[i]], same);
            }
        }
    }
    return out;
}

tokens random_text(dice & d) {
    const auto n_tokens = 1 + d.below(d.chance(0.3) ? 2 : 6); // few, so that passages repeat
    tokens     text(d.below(60));
    for (token_id & t : text) {
        t = token_id(d.below(n_tokens));
    }
    return text;
}

dry_breakers random_breakers(dice & d) {
    dry_breakers out;
    for (uint32_t n = d.below(4); n > 0; --n) {
        tokens tail(d.below(3));
        for (token_id & t : tail) {
            t = token_id(d.below(6));
        }
        out[token_id(d.below(6))].push_back(tail);
    }
    return out;
}

float expected(const sampling_params & s, int32_t length) {
    return s.dry_multiplier * std::pow(s.dry_base, float(length - s.dry_allowed_length));
}

} // namespace

TEST(what_a_slow_search_finds) {
    dice       d(5);
    dry_search search;
    int        n_found = 0;
    for (int i = 0; i < 20000; ++i) {
        const tokens       text     = random_text(d);
        const dry_breakers breakers = random_breakers(d);
        sampling_params    s;
        s.dry_multiplier     = 0.5f + float(d.below(4));
        s.dry_base           = 1.0f + 0.25f * float(d.below(4));
        s.dry_allowed_length = int32_t(d.below(5));
        s.dry_penalty_last_n = d.chance(0.3) ? -1 : int32_t(1 + d.below(70));
        const lengths right  = slow(text, s, breakers);
        const auto    found  = search.penalties(text, s, breakers);
        REQUIRE(found.size() == right.size(), std::to_string(i));
        auto at = right.begin();
        for (const auto & f : found) {
            CHECK_EQ(f.token, at->first);
            CHECK_EQ(f.length, at->second);
            CHECK(std::abs(f.penalty - expected(s, f.length)) <= 1e-5f * f.penalty);
            ++at;
            ++n_found;
        }
    }
    CHECK(n_found > 10000);
}

TEST(llama_cpps_example) {
    // a b c c b c y a b c: c would continue "a b c", b continues "c", y continues "b c".
    const tokens    text{1, 2, 3, 3, 2, 3, 9, 1, 2, 3};
    sampling_params s;
    s.dry_multiplier     = 1.0f;
    s.dry_base           = 2.0f;
    s.dry_allowed_length = 1;
    dry_search search;
    const auto found = search.penalties(text, s, {});
    REQUIRE(found.size() == 3);
    CHECK(found[0].token == 2 && found[0].penalty == 1.0f);
    CHECK(found[1].token == 3 && found[1].penalty == 4.0f);
    CHECK(found[2].token == 9 && found[2].penalty == 2.0f);
    // A breaker before the last two tokens, and one that is itself the continuation.
    CHECK_EQ(search.penalties(text, s, {{1, {{}}}})[1].length, 2);
    CHECK_EQ(search.penalties(text, s, {{9, {{}}}}).size(), 2u);
    CHECK_EQ(search.penalties(text, s, {{2, {{3}}}}).size(), 0u);
}

TEST(a_long_repetition_has_a_finite_penalty) {
    const tokens    text(5000, 7);
    sampling_params s;
    s.dry_multiplier     = 0.8f;
    s.dry_penalty_last_n = -1;
    dry_search search;
    const auto found = search.penalties(text, s, {});
    REQUIRE(found.size() == 1);
    CHECK_EQ(found[0].length, 4999);
    CHECK(std::isfinite(found[0].penalty) && found[0].penalty > 1e30f);
    s.dry_multiplier = 1e4f;
    CHECK(std::isfinite(search.penalties(text, s, {})[0].penalty));
    s.dry_multiplier = 0.8f;
    s.dry_base       = 1.0f;
    CHECK_EQ(search.penalties(text, s, {})[0].penalty, 0.8f);
}
