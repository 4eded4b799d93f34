// The test framework: nothing to download, nothing to install. CHECK counts failures, REQUIRE ends the test as well.
//
//   TEST(ring_keeps_order) { CHECK_EQ(ring.capacity(), 8u); }
//
// The executable runs all its tests, or those whose names contain an argument.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <initializer_list>
#include <sstream>
#include <string>
#include <type_traits>
#include <vector>

namespace check {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool sanitized = true;
#else
constexpr bool sanitized = false;
#endif

// The size of random and simulated tests: DUO_TEST_SCALE (`make proof` sets it), or 1, or 0.2 under a sanitizer, where
// each case takes ten times as long and the question is about memory and threads, not about figures.
inline double scale() {
    static const double x = [] {
        const char * text = std::getenv("DUO_TEST_SCALE");
        const double n    = text == nullptr ? 0.0 : std::atof(text);
        return n > 0.0 ? n : sanitized ? 0.2 : 1.0;
    }();
    return x;
}

inline bool is_small() {
    return scale() < 1.0;
}

// Of random cases or observations, of which a test usually takes so many.
inline int n_cases(int usual) {
    return std::max(1, int(std::lround(usual * scale())));
}

// Of a grid: all, or the one in the middle if the scale is below 1.
template <typename T> std::vector<T> cases(std::initializer_list<T> all) {
    return is_small() ? std::vector<T>{all.begin()[all.size() / 2]} : std::vector<T>(all);
}

struct test_case {
    const char * name;
    void (*body)();
};

inline std::vector<test_case> & all_tests() {
    static std::vector<test_case> tests;
    return tests;
}

inline std::atomic<int> n_failed{0}; // any thread may fail

struct add_test {
    add_test(const char * name, void (*body)()) { all_tests().push_back({name, body}); }
};

struct require_failed : std::exception {};

template <typename T> void show(std::ostream & out, const T & value) {
    if constexpr (std::is_enum_v<T>) {
        out << +std::underlying_type_t<T>(value);
    } else if constexpr (std::is_same_v<T, std::string>) {
        out << '"' << value << '"';
    } else if constexpr (requires { out << value; }) {
        out << value;
    } else if constexpr (requires { value.begin(); }) {
        out << '[';
        for (const auto & x : value) {
            show(out, x);
            out << ' ';
        }
        out << ']';
    } else {
        out << '?';
    }
}

// One fprintf, so that threads do not mix their lines; a broken loop must not fill the disk.
inline bool fail(const char * file, int line, const std::string & what) {
    if (n_failed.fetch_add(1) < 50) {
        std::fprintf(stderr, "%s:%d: FAILED %s\n", file, line, what.c_str());
    }
    return false;
}

inline bool is_true(bool ok, const char * file, int line, const char * text, const std::string & note = {}) {
    return ok || fail(file, line, text + (note.empty() ? "" : " (" + note + ")"));
}

template <typename A, typename B>
bool is_equal(const A & a, const B & b, const char * file, int line, const char * text, const std::string & note = {}) {
    if (a == b) {
        return true;
    }
    std::ostringstream out;
    out << text << ": ";
    show(out, a);
    out << " != ";
    show(out, b);
    return fail(file, line, out.str() + (note.empty() ? "" : " (" + note + ")"));
}

} // namespace check

#define TEST(name)                                                                                                     \
    static void                  test_##name();                                                                        \
    static const check::add_test add_##name(#name, test_##name);                                                       \
    static void                  test_##name()

// A last argument, if given, is a std::string that says in which case it failed.
#define CHECK(cond, ...) check::is_true(bool(cond), __FILE__, __LINE__, #cond __VA_OPT__(, ) __VA_ARGS__)
#define CHECK_EQ(a, b, ...) check::is_equal(a, b, __FILE__, __LINE__, #a " == " #b __VA_OPT__(, ) __VA_ARGS__)
#define REQUIRE(...)                                                                                                   \
    do {                                                                                                               \
        if (!CHECK(__VA_ARGS__)) {                                                                                     \
            throw check::require_failed();                                                                             \
        }                                                                                                              \
    } while (false)
#define REQUIRE_EQ(...)                                                                                                \
    do {                                                                                                               \
        if (!CHECK_EQ(__VA_ARGS__)) {                                                                                  \
            throw check::require_failed();                                                                             \
        }                                                                                                              \
    } while (false)
