// The test framework: nothing to download, nothing to install. CHECK counts failures, REQUIRE ends the test as well.
//
//   TEST(ring_keeps_order) { CHECK_EQ(ring.capacity(), 8u); }
//
// The executable runs all its tests, or those whose names contain an argument.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <initializer_list>
#include <ostream>
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
double scale();
bool   is_small(); // below 1

// Of random cases or observations, of which a test usually takes so many.
int n_cases(int usual);

// Much above 1, and under a sanitizer, which looks for something else; little otherwise, as in `make test`.
inline bool is_much() {
    return sanitized || scale() > 1.0;
}

template <typename T> T by_scale(T little, T much) {
    return is_much() ? much : little;
}

// Of a grid: all, or the one in the middle if the scale is below 1.
template <typename T> std::vector<T> cases(std::initializer_list<T> all) {
    return is_small() ? std::vector<T>{all.begin()[all.size() / 2]} : std::vector<T>(all);
}

// The same, of little or of much.
template <typename T> std::vector<T> cases(std::initializer_list<T> little, std::initializer_list<T> much) {
    return cases(by_scale(little, much));
}

struct test_case {
    const char * name;
    void (*body)();
};

std::vector<test_case> & all_tests();

extern std::atomic<int> n_failed; // any thread may fail

struct add_test {
    add_test(const char * name, void (*body)());
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

// A value of any type, for a message.
struct shown {
    const void * value;
    void (*print)(std::ostream & out, const void * value);
};

template <typename T> void print_as(std::ostream & out, const void * value) {
    show(out, *static_cast<const T *>(value));
}

extern template void print_as<std::string>(std::ostream &, const void *);
extern template void print_as<std::vector<int32_t>>(std::ostream &, const void *);

// In which case a check failed.
struct note {
    note() = default;
    note(const char * text) : chars(text) {}
    note(const std::string & text) : chars(text.c_str()) {}

    const char * chars = "";
};

// What a failed check says is written in one place: there are over a thousand checks. These are false.
bool fail(const char * file, int line, const std::string & what);
bool fail(const char * file, int line, const char * text, note n);
bool differ(int64_t a, int64_t b, const char * file, int line, const char * text, note n);
bool differ(uint64_t a, uint64_t b, const char * file, int line, const char * text, note n);
bool differ(double a, double b, const char * file, int line, const char * text, note n);
bool differ(const shown & a, const shown & b, const char * file, int line, const char * text, note n);

inline bool is_true(bool ok, const char * file, int line, const char * text, note n = {}) {
    return ok || fail(file, line, text, n);
}

template <typename T>
concept number = std::is_arithmetic_v<T> || std::is_enum_v<T>;

// Numbers are not passed by reference, which a sanitizer would watch.
template <number A, number B> bool is_equal(A a, B b, const char * file, int line, const char * text, note n = {}) {
    using shared =
        std::conditional_t<std::is_floating_point_v<A> || std::is_floating_point_v<B>, double,
                           std::conditional_t<std::is_unsigned_v<A> && std::is_unsigned_v<B>, uint64_t, int64_t>>;
    return a == b || differ(shared(a), shared(b), file, line, text, n);
}

template <typename A, typename B>
    requires(!number<A> || !number<B>)
bool is_equal(const A & a, const B & b, const char * file, int line, const char * text, note n = {}) {
    return a == b || differ({&a, print_as<A>}, {&b, print_as<B>}, file, line, text, n);
}

// Ends the test if its check failed.
void require(bool ok);

} // namespace check

#define TEST(name)                                                                                                     \
    static void                  test_##name();                                                                        \
    static const check::add_test add_##name(#name, test_##name);                                                       \
    static void                  test_##name()

// A last argument, if given, is a string that says in which case it failed.
#define CHECK(cond, ...) check::is_true(bool(cond), __FILE__, __LINE__, #cond __VA_OPT__(, ) __VA_ARGS__)
#define CHECK_EQ(a, b, ...) check::is_equal(a, b, __FILE__, __LINE__, #a " == " #b __VA_OPT__(, ) __VA_ARGS__)
#define REQUIRE(...) check::require(CHECK(__VA_ARGS__))
#define REQUIRE_EQ(...) check::require(CHECK_EQ(__VA_ARGS__))
