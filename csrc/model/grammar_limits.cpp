#include "grammar_limits.h"

#include <algorithm>
#include <cstddef>

namespace duo {

namespace {

constexpr size_t n_bytes_most = size_t(1) << 20;
constexpr int    n_deep_most  = 2500; // nested parentheses
constexpr int    n_rules_most = 8000;

// The index after the part that begins at s[i] and ends with `close`. A backslash escapes the next character.
size_t behind(const std::string & s, size_t i, char close) {
    for (++i; i < s.size() && s[i] != close; ++i) {
        i += s[i] == '\\' ? 1 : 0;
    }
    return std::min(i, s.size());
}

} // namespace

std::string grammar_too_large(const std::string & gbnf) {
    if (gbnf.size() > n_bytes_most) {
        return "it has " + std::to_string(gbnf.size()) + " bytes, " + std::to_string(n_bytes_most) +
               " at most can be read";
    }
    int deep    = 0;
    int deepest = 0;
    int n_rules = 0;
    for (size_t i = 0; i < gbnf.size(); ++i) {
        switch (gbnf[i]) {
            case '"':
                i = behind(gbnf, i, '"');
                break;
            case '[':
                i = behind(gbnf, i, ']');
                break;
            case '#':
                i = std::min(gbnf.find('\n', i), gbnf.size());
                break;
            case '(':
                deepest = std::max(deepest, ++deep);
                break;
            case ')':
                --deep;
                break;
            case ':':
                n_rules += gbnf.compare(i, 3, "::=") == 0 ? 1 : 0;
                break;
            default:
                break;
        }
    }
    if (deepest > n_deep_most) {
        return "its parentheses are nested " + std::to_string(deepest) + " deep, " + std::to_string(n_deep_most) +
               " at most can be read";
    }
    if (n_rules > n_rules_most) {
        return "it has " + std::to_string(n_rules) + " rules, " + std::to_string(n_rules_most) + " at most can be read";
    }
    return {};
}

} // namespace duo
