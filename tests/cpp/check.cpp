#include "check.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <sstream>

namespace check {

std::atomic<int> n_failed{0};

double scale() {
    static const double x = [] {
        const char * text = std::getenv("DUO_TEST_SCALE");
        const double n    = text == nullptr ? 0.0 : std::atof(text);
        return n > 0.0 ? n : sanitized ? 0.2 : 1.0;
    }();
    return x;
}

bool is_small() {
    return scale() < 1.0;
}

int n_cases(int usual) {
    return std::max(1, int(std::lround(usual * scale())));
}

std::vector<test_case> & all_tests() {
    static std::vector<test_case> tests;
    return tests;
}

add_test::add_test(const char * name, void (*body)()) {
    all_tests().push_back({name, body});
}

// One fprintf, so that threads do not mix their lines; a broken loop must not fill the disk.
bool fail(const char * file, int line, const std::string & what) {
    if (n_failed.fetch_add(1) < 50) {
        std::fprintf(stderr, "%s:%d: FAILED %s\n", file, line, what.c_str());
    }
    return false;
}

bool fail(const char * file, int line, const char * text, note n) {
    return fail(file, line, *n.chars == '\0' ? text : std::string(text) + " (" + n.chars + ")");
}

bool differ(const shown & a, const shown & b, const char * file, int line, const char * text, note n) {
    std::ostringstream out;
    out << text << ": ";
    a.print(out, a.value);
    out << " != ";
    b.print(out, b.value);
    return fail(file, line, out.str().c_str(), n);
}

template <typename T> static shown shown_as(const T & value) {
    return {&value, print_as<T>};
}

bool differ(int64_t a, int64_t b, const char * file, int line, const char * text, note n) {
    return differ(shown_as(a), shown_as(b), file, line, text, n);
}

bool differ(uint64_t a, uint64_t b, const char * file, int line, const char * text, note n) {
    return differ(shown_as(a), shown_as(b), file, line, text, n);
}

bool differ(double a, double b, const char * file, int line, const char * text, note n) {
    return differ(shown_as(a), shown_as(b), file, line, text, n);
}

void require(bool ok) {
    if (!ok) {
        throw require_failed();
    }
}

template void print_as<std::string>(std::ostream &, const void *);
template void print_as<std::vector<int32_t>>(std::ostream &, const void *);

} // namespace check
