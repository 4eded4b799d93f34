// Ring, channel and bell: order, checksums, and no wake-up lost.
#include <atomic>
#include <deque>
#include <thread>

#include "base/clock.h"
#include "check.h"
#include "random.h"
#include "rings/channel.h"
#include "rings/spsc_ring.h"
#include "sleeper.h"

using namespace duo;
using namespace duo_test;

namespace {

struct message {
    uint64_t n = 0;
    uint64_t body[4]{};
    uint64_t sum = 0;
};

message make_message(uint64_t n) {
    message m{.n = n};
    for (uint64_t & x : m.body) {
        x = hash64(n++);
        m.sum += x;
    }
    return m;
}

// A busy machine sends fewer messages, rather than taking minutes.
constexpr int64_t budget_us = 4000000;

bool intact(const message & m) {
    return m.sum == m.body[0] + m.body[1] + m.body[2] + m.body[3] && m.body[0] == hash64(m.n);
}

// Sends n messages, as far as time allows, and reads them in the order sent; both sides pause at random.
void stream(channel<message> & ch, bell & reader, uint64_t n, uint64_t seed, int32_t pause_us, uint32_t one_in) {
    const int64_t deadline = now_us() + budget_us;
    uint64_t      n_sent   = 0;
    std::thread   producer([&] {
        dice d(seed);
        for (; n_sent < n && (n_sent % 64 != 0 || now_us() < deadline); ++n_sent) {
            if (d.below(one_in) == 0) {
                loiter(d.next(), pause_us);
            }
            if (!ch.push(make_message(n_sent))) {
                check::fail(__FILE__, __LINE__, "push failed on an open channel");
                return;
            }
        }
        ch.close();
    });
    dice          d(seed + 1);
    uint64_t      n_read = 0;
    for (;;) {
        const uint32_t heard = reader.listen();
        const bool     last  = ch.closed();
        message        m;
        bool           some = false;
        while (ch.try_pop(m)) {
            some = true;
            if (m.n != n_read || !intact(m)) {
                check::fail(__FILE__, __LINE__,
                            "message " + std::to_string(n_read) + " arrived as " + std::to_string(m.n));
            }
            ++n_read;
            if (d.below(one_in) == 0) {
                loiter(d.next(), pause_us);
            }
        }
        if (last) {
            break; // closed was seen before the ring was found empty: nothing can be left
        }
        if (!some) {
            reader.wait(heard);
        }
    }
    producer.join();
    CHECK_EQ(n_read, n_sent);
    CHECK(n_sent > 0);
}

} // namespace

TEST(ring_capacity_is_a_power_of_two) {
    for (const auto & [asked, given] :
         {std::pair<size_t, size_t>{0, 2}, {1, 2}, {2, 2}, {3, 4}, {8, 8}, {9, 16}, {1000, 1024}}) {
        CHECK_EQ(spsc_ring<int>(asked).capacity(), given);
    }
}

TEST(ring_is_a_queue_of_bounded_length) {
    for (const size_t capacity : {2u, 4u, 16u}) {
        spsc_ring<uint64_t>  ring(capacity);
        std::deque<uint64_t> model;
        dice                 d(capacity);
        uint64_t             n_sent = 0;
        for (int i = 0; i < 200000; ++i) {
            if (d.chance(0.5)) {
                const bool pushed = ring.try_push(n_sent);
                CHECK_EQ(pushed, model.size() < capacity);
                if (pushed) {
                    model.push_back(n_sent++);
                }
            } else {
                uint64_t   x      = 0;
                const bool popped = ring.try_pop(x);
                CHECK_EQ(popped, !model.empty());
                if (popped) {
                    CHECK_EQ(x, model.front());
                    model.pop_front();
                }
            }
        }
    }
}

TEST(ring_two_threads) {
    for (const size_t capacity : {2u, 8u, 1024u}) {
        spsc_ring<message> ring(capacity);
        const uint64_t     n        = check::by_scale<uint64_t>(300000, 1000000);
        const int64_t      deadline = now_us() + budget_us;
        uint64_t           n_sent   = 0;
        std::thread        producer([&] {
            dice d(capacity);
            while (n_sent < n && now_us() < deadline) {
                for (uint32_t burst = d.below(64); burst > 0 && n_sent < n; --burst) {
                    if (!ring.try_push(make_message(n_sent))) {
                        std::this_thread::yield();
                        continue;
                    }
                    ++n_sent;
                }
                if (d.below(512) == 0) {
                    loiter(d.next(), 50);
                }
            }
            ring.close();
        });
        dice               d(capacity + 1);
        uint64_t           n_read = 0;
        for (;;) {
            const bool last = ring.closed();
            message    m;
            while (ring.try_pop(m)) {
                if (m.n != n_read || !intact(m)) {
                    check::fail(__FILE__, __LINE__, "message out of order or torn");
                }
                ++n_read;
                if (d.below(4096) == 0) {
                    loiter(d.next(), 50);
                }
            }
            if (last) {
                break;
            }
            std::this_thread::yield();
        }
        producer.join();
        CHECK_EQ(n_read, n_sent);
        CHECK(n_sent > 0);
    }
}

TEST(channel_sleepers_are_woken) {
    // Capacity 2: both sides sleep all the time. A lost wake-up would hang here until ctest's time-out.
    for (uint64_t seed = 0; seed < 8; ++seed) {
        bell             writer;
        bell             reader;
        channel<message> ch(2, writer, reader);
        stream(ch, reader, check::by_scale<uint64_t>(3000, 10000), seed, 30, 4);
    }
    bell             writer;
    bell             reader;
    channel<message> ch(2, writer, reader);
    stream(ch, reader, check::by_scale<uint64_t>(60000, 200000), 99, 5, 1000000);
}

TEST(channel_in_bursts) {
    bell             writer;
    bell             reader;
    channel<message> ch(256, writer, reader);
    stream(ch, reader, check::by_scale<uint64_t>(300000, 1000000), 7, 100, 5000);
}

TEST(close_wakes_a_full_producer) {
    for (int i = 0; i < 300; ++i) {
        bell             writer;
        bell             reader;
        channel<int>     ch(2, writer, reader);
        std::atomic<int> n_sent{0};
        std::thread      producer([&] {
            while (ch.push(n_sent.load())) {
                ++n_sent;
            }
        });
        loiter(hash64(uint64_t(i)), 200);
        ch.close();
        producer.join();
        CHECK(!ch.push(0));
        int x      = -1;
        int n_read = 0;
        while (ch.try_pop(x)) {
            CHECK_EQ(x, n_read++);
        }
        CHECK_EQ(n_read, n_sent.load()); // what was pushed before is read
    }
}

TEST(close_wakes_an_idle_consumer) {
    for (int i = 0; i < 300; ++i) {
        bell         writer;
        bell         reader;
        channel<int> ch(4, writer, reader);
        sleeper      state;
        int          n_waits = 0;
        bool         rang    = true;
        std::thread  consumer([&] {
            state.begin();
            for (;;) {
                const uint32_t heard = reader.listen();
                const bool     last  = ch.closed();
                int            x     = 0;
                if (ch.try_pop(x)) {
                    continue;
                }
                if (last) {
                    return;
                }
                ++n_waits;
                rang = reader.wait(heard, now_us() + 60000000) && rang;
            }
        });
        const bool   asleep = i % 10 == 0;
        if (asleep) {
            state.wait_until_asleep();
        } else {
            loiter(hash64(uint64_t(i)), 200);
        }
        ch.close();
        ch.close();
        consumer.join();
        CHECK(rang);
        CHECK(!asleep || n_waits > 0);
    }
}
