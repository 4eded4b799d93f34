// The bell: every ring is heard.
#include <atomic>
#include <thread>
#include <vector>

#include "check.h"
#include "rings/bell.h"
#include "sleeper.h"

using namespace duo;
using namespace duo_test;

namespace {
constexpr int64_t budget_us = 4000000; // a busy machine does less, rather than taking minutes
} // namespace

TEST(bell_ping_pong) {
    bell             a;
    bell             b;
    std::atomic<int> turn{0};
    const int        n        = 200000;
    const int64_t    deadline = now_us() + budget_us;
    const auto       player   = [&](bell & mine, bell & other, int parity) {
        for (;;) {
            const uint32_t heard = mine.listen();
            const int      t     = turn.load(std::memory_order_relaxed);
            if (t >= n || (t % 64 == parity && now_us() > deadline)) {
                turn.store(n, std::memory_order_relaxed);
                other.ring();
                return;
            }
            if (t % 2 == parity) {
                turn.store(t + 1, std::memory_order_relaxed);
                other.ring();
            } else {
                mine.wait(heard);
            }
        }
    };
    std::thread other([&] { player(b, a, 1); });
    player(a, b, 0);
    other.join();
    CHECK_EQ(turn.load(), n);
}

TEST(bell_deadline) {
    bell b;
    for (const int64_t us : {0, 200, 3000, 20000}) {
        const int64_t t0 = now_us();
        CHECK(!b.wait(b.listen(), t0 + us));
        CHECK(now_us() - t0 >= us - 50, "returned too early");
    }
    CHECK(!b.wait(b.listen(), now_us() - 1000));
    const uint32_t heard = b.listen();
    b.ring();
    CHECK(b.wait(heard, now_us() - 1000), "a bell that rang is heard after the deadline as well");

    std::thread ringer([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        b.ring();
    });
    CHECK(b.wait(b.listen())); // a lost wake-up would hang here until ctest's time-out
    ringer.join();
}

TEST(bell_wakes_every_sleeper) {
    bell                     b;
    std::atomic<int>         n_woken{0};
    sleeper                  states[4];
    std::vector<std::thread> sleepers;
    for (sleeper & s : states) {
        sleepers.emplace_back([&, heard = b.listen()] {
            s.begin();
            n_woken += b.wait(heard) ? 1 : 0;
        });
    }
    for (sleeper & s : states) {
        s.wait_until_asleep();
    }
    CHECK_EQ(n_woken.load(), 0);
    b.ring();
    for (std::thread & t : sleepers) {
        t.join();
    }
    CHECK_EQ(n_woken.load(), 4);
}
