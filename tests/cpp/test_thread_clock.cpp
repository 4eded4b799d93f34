// The clock of a thread: what it computes counts, waiting does not.
#include <chrono>
#include <thread>

#include "base/clock.h"
#include "base/thread_clock.h"
#include "check.h"

using namespace duo;

TEST(a_thread_that_waits_computes_nothing) {
    const int64_t t0     = now_us();
    const int64_t before = thread_us();
    std::this_thread::sleep_for(std::chrono::milliseconds(40));
    CHECK(now_us() - t0 >= 40'000);
    CHECK(thread_us() - before < 20'000);
}

TEST(a_thread_that_computes_sees_its_clock_go_on) {
    const int64_t before = thread_us();
    const int64_t t0     = now_us();
    while (thread_us() - before < 2'000) {}
    CHECK(now_us() - t0 >= 1'900); // no more than one core
}
