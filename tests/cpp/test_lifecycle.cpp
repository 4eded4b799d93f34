// Start, cancel, close and destroy in every state; nothing is left behind, and the next text is right.
#include <filesystem>
#include <fstream>
#include <functional>
#include <system_error>

#include "pair.h"

using namespace duo_test;

namespace {

const run_mode modes[] = {run_mode::plain, run_mode::sync, run_mode::async};

int n_threads() {
    int n = 0;
    for ([[maybe_unused]] const auto & entry : std::filesystem::directory_iterator("/proc/self/task")) {
        ++n;
    }
    return n;
}

// A joined thread's entry may outlive the join by a moment.
void check_threads(int want) {
    for (int i = 0; i < 200 && n_threads() > want; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    CHECK(n_threads() <= want); // fewer: an emulator's own were counted
}

struct state {
    const char *                name;
    std::function<void(pair &)> reach; // brings a running request there
    behaviour                   target{};
    behaviour                   draft{.agree = 0.7};
};

const ask long_prompt = [] {
    ask q{.prompt = std::vector<token_id>(200, 4), .n_predict = 100};
    return q;
}();

void read_tokens(pair & p, size_t n) {
    answer a;
    read_some(p.line, a, n);
}

std::vector<state> states() {
    const auto sleep = [](int us) { std::this_thread::sleep_for(std::chrono::microseconds(us)); };
    return {
        {"at once", [](pair &) {}},
        {"in the prompt", [=](pair &) { sleep(1500); }, {.n_batch = 8, .pass_us = 300}, {.n_batch = 4, .pass_us = 300}},
        {"deaf in the prompt",
         [=](pair &) { sleep(1500); },
         {.n_batch = 8, .pass_us = 300, .heeds_stop = false},
         {.n_batch = 4, .pass_us = 300, .heeds_stop = false}},
        {"after one token", [](pair & p) { read_tokens(p, 1); }},
        {"in a pass",
         [=](pair & p) {
             read_tokens(p, 3);
             sleep(700);
         },
         {.pass_us = 2000}},
        {"waiting for the draft",
         [=](pair & p) {
             read_tokens(p, 3);
             sleep(700);
         },
         {},
         {.pass_us = 3000}},
        {"before the end is read", [=](pair & p) { read_tokens(p, 100); }},
        {"at the end", [](pair & p) { read_all(p.line); }},
        {"finished but unread", [=](pair &) { sleep(30000); }},
    };
}

} // namespace

TEST(no_thread_is_left) {
    std::thread([] {}).join(); // ThreadSanitizer starts a thread of its own with the first one
    const int before = n_threads();
    for (int i = 0; i < 100; ++i) {
        pair p({}, i % 2 == 0 ? std::optional(behaviour{}) : std::nullopt);
        if (i % 3 == 0) {
            p.line.close();
            p.line.close();
            p.line.cancel_all();
        }
    }
    check_threads(before);
}

// Copied, it throws, as std::thread does that cannot start: a thread copies what it is to do.
struct throws_when_copied {
    throws_when_copied() = default;
    throws_when_copied(const throws_when_copied & other) : armed(other.armed) {
        if (*armed) {
            throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
        }
    }
    void operator()() const {}

    std::shared_ptr<bool> armed = std::make_shared<bool>(false);
};

TEST(a_thread_that_cannot_start_leaves_none_behind) {
    std::thread([] {}).join();
    const int                before = n_threads();
    const throws_when_copied hook;
    scripted_model           target{behaviour{}}, draft{behaviour{}};
    for (const bool of_target : {true, false}) { // the other thread runs already where it is the draft's
        for (int i = 0; i < 20; ++i) {
            pipeline::options opt;
            (of_target ? opt.on_target_thread : opt.on_draft_thread) = hook;
            *hook.armed                                              = true;
            bool failed                                              = false;
            try {
                const pipeline p(&target, &draft, opt);
            } catch (const std::system_error &) {
                failed = true;
            }
            *hook.armed = false;
            CHECK(failed);
        }
    }
    check_threads(before);
    pipeline p(&target, &draft, {}); // the models are as they were
    p.begin(ask{}.make());
    CHECK(read_all(p).finish == finish_reason::length);
}

TEST(without_a_draft_every_mode_is_plain) {
    pair p(behaviour{});
    for (const run_mode mode : modes) {
        CHECK_EQ(p.run(ask{}.as(mode, 4)).stats.n_drafted, 0);
    }
}

TEST(cancel_in_every_state) {
    for (const state & s : states()) {
        for (const run_mode mode : modes) {
            pair p(s.target, s.draft);
            for (int i = 0; i < 4; ++i) {
                p.line.begin(long_prompt.as(mode, 4).make());
                s.reach(p);
                p.line.cancel(*p.line.current());
                p.line.cancel(*p.line.current());
                CHECK(!p.line.running(), s.name);
                text_chunk c;
                CHECK(!p.line.next(*p.line.current(), c, now_us() + 100), s.name);
            }
            p.run(long_prompt.as(mode, 4), s.name);
        }
    }
}

TEST(close_in_every_state) {
    const int before = n_threads();
    for (const state & s : states()) {
        for (const run_mode mode : modes) {
            for (const bool destroy_only : {false, true}) {
                pair p(s.target, s.draft);
                p.line.begin(long_prompt.as(mode, 4).make());
                s.reach(p);
                if (!destroy_only) {
                    p.line.close();
                    CHECK(!p.line.running(), s.name);
                    text_chunk c;
                    while (p.line.next(*p.line.current(), c, now_us() + 100)) {}
                    p.line.close();
                }
            }
        }
    }
    check_threads(before);
}

TEST(cancel_ends_a_wait) {
    // Turn-taking waits for a draft whose step is expected to take hours. If cancel did, ctest's time-out would say so.
    for (int i = 0; i < 5; ++i) {
        pair p(behaviour{.hang_at = 0}, behaviour{.hang_at = 0}, false, {.step_us = 1e10});
        p.begin_with_hanging_draft(ask{}.as(run_mode::sync, 4));
        std::this_thread::sleep_for(std::chrono::milliseconds(20)); // it now waits in front of its first choice
        p.line.cancel(*p.line.current());
        CHECK(!p.line.running());
    }
}

TEST(draft_lets_go_of_a_finished_text) {
    pair p(behaviour{}, behaviour{.agree = 0.7});
    for (int i = 0; i < 20; ++i) {
        p.run(ask{}.as(run_mode::async, 4));
        for (int k = 0; k < 5000 && !p.line.current()->req().draft_done.load(); ++k) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        CHECK(p.line.current()->req().draft_done.load());
    }
}

TEST(reader_that_never_reads) {
    // The chunk ring fills, the target waits for room; cancel and the destructor come through all the same.
    const behaviour b{.n_ctx = 20000};
    pair            p(b, behaviour{.n_ctx = 20000, .agree = 0.9});
    const ask       q = ask{.n_predict = 10000}.as(run_mode::async, 8);
    for (int i = 0; i < 2; ++i) {
        p.line.begin(q.make());
        int64_t n = -1;
        while (p.target.n_decoded.load() != n) { // until it stands still
            n = p.target.n_decoded.load();
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
        }
        if (i == 0) {
            p.line.cancel(*p.line.current());
            p.run(ask{.n_predict = 100}.as(run_mode::async, 8));
        }
    }
}

TEST(cancelled_statistics) {
    pair p(behaviour{.pass_us = 200}, behaviour{.agree = 0.5});
    for (const run_mode mode : modes) {
        const ask q = ask{.n_predict = 400}.as(mode, 4);
        request & r = p.line.begin(q.make())->req();
        answer    a;
        read_some(p.line, a, 5);
        r.cancelled.store(true); // what cancel() does, but the rest is read here
        read_some(p.line, a, size_t(-1));
        CHECK_EQ(a.finish, finish_reason::cancelled);
        check_stats(a, q, "cancelled");
    }
}

TEST(next_waits_no_longer_than_its_deadline) {
    pair p(behaviour{.hang_at = 0});
    p.line.begin(ask{}.make());
    text_chunk    c;
    const int64_t t0 = now_us();
    CHECK(!p.line.next(*p.line.current(), c, t0 + 5000));
    CHECK(now_us() - t0 >= 4900);
    CHECK(!p.line.next(*p.line.current(), c, 0));
    p.target.release();
    read_all(p.line);
}

TEST(thousand_requests_need_no_more_memory) {
    const auto resident_kib = [] {
        std::ifstream f("/proc/self/statm");
        int64_t       all = 0, resident = 0;
        f >> all >> resident;
        return resident * 4;
    };
    const behaviour b{.n_ctx = 8000, .n_batch = 8000, .agree = 0.8};
    pair            p(b, b, true);
    int64_t         before = 0;
    for (int i = 0; i < 1500; ++i) {
        if (i == 500) {
            before = resident_kib();
        }
        ask q = ask{.n_predict = 10}.as(modes[i % 3]);
        q.prompt.assign(7000, i % 40);
        p.line.begin(q.make());
        if (i % 5 == 0) {
            p.line.cancel(*p.line.current());
        } else {
            read_all(p.line);
        }
        std::vector<trace_event> target, draft;
        p.line.take_trace(target, draft);
    }
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
    CHECK(resident_kib() - before < 8000, std::to_string(resident_kib() - before)); // 1000 leaked prompts: 28 MB
#else
    (void)before;
#endif
}
