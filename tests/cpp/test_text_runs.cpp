// Texts without spaces: how long their runs are, and the stack on which they are read.
#include <stdexcept>
#include <string>

#include "base/deep_stack.h"
#include "base/error.h"
#include "check.h"
#include "llama/text_runs.h"

using namespace duo;

namespace {

// Calls itself n times, with a kilobyte each time.
int deep(int n) {
    volatile char frame[1024];
    frame[0]        = char(n);
    const int below = n == 0 ? 0 : deep(n - 1);
    return below + (frame[0] == char(n) ? 1 : 0);
}

} // namespace

TEST(the_longest_run_is_of_spaces_or_a_line_of_words) {
    CHECK_EQ(longest_run(""), 0u);
    CHECK_EQ(longest_run("a"), 1u);
    CHECK_EQ(longest_run("abc de"), 6u);
    CHECK_EQ(longest_run("abc  de"), 3u);
    CHECK_EQ(longest_run("abc\nde "), 3u);
    CHECK_EQ(longest_run(" a b"), 3u);
    CHECK_EQ(longest_run("a \n\t b"), 4u);
    CHECK_EQ(longest_run("a\tb c" + std::string(300, 'x')), 303u);
    CHECK_EQ(longest_run("\xe4\xbd\xa0\xe5\xa5\xbd, \xe4\xbd\xa0"), 11u);
}

TEST(work_has_the_stack_that_it_asked_for) {
    int n = 0;
    on_deep_stack(size_t(256) << 20, [&] { n = deep(30000); }); // no thread has 30 MB otherwise
    CHECK_EQ(n, 30001);
}

TEST(what_work_throws_comes_out) {
    bool caught = false;
    try {
        on_deep_stack(1 << 20, [] { throw std::runtime_error("as it is"); });
    } catch (const std::runtime_error & e) {
        caught = std::string(e.what()) == "as it is";
    }
    CHECK(caught);
}

TEST(a_run_that_no_stack_is_for_is_refused) {
    bool read    = false;
    bool refused = false;
    try {
        with_stack_for((size_t(1) << 20) + 1, [&] { read = true; });
    } catch (const error & e) {
        refused = std::string(e.what()).find("1048577 bytes without a line end") != std::string::npos;
    }
    CHECK(refused && !read);
    with_stack_for(size_t(1) << 20, [&] { read = true; });
    CHECK(read);
}
