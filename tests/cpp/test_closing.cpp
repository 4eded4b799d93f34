// A pipeline that closes, or cannot be made: no thread is left, and whoever asks meanwhile gets an answer.
#include "pair.h"

using namespace duo_test;

namespace {

// The last text has ended, the draft has let go of it, and no other one begins.
void check_closed(pair & p) {
    CHECK(!p.line.running());
    CHECK(p.line.current()->req().draft_done.load());
    text_chunk c;
    while (p.line.next(*p.line.current(), c, now_us())) {}
    CHECK(p.line.ended(*p.line.current()));
    error_kind why = error_kind::internal;
    try {
        p.line.begin(ask{}.make());
    } catch (const duo::error & e) {
        why = e.kind();
    }
    CHECK(why == error_kind::cancelled);
}

} // namespace

TEST(figures_are_asked_for_while_texts_begin_and_all_is_closed) {
    for (int i = 0; i < 20; ++i) {
        pair              p(behaviour{.hang_at = 0}, behaviour{.agree = 0.7});
        std::atomic<bool> stop{false};
        std::atomic<int>  n_learned{0};
        std::atomic<int>  n_busy{0};
        const size_t      n_numbers = planner().saved().size();
        std::thread       asker([&] {
            while (!stop) {
                try {
                    std::vector<double> found;
                    p.line.with_plans([&found](planner & plans) {
                        found = plans.saved();
                        plans.restore(found);
                    });
                    CHECK(found.size() >= n_numbers);
                    ++n_learned;
                } catch (const duo::error & e) {
                    CHECK(e.kind() == error_kind::busy);
                    ++n_busy;
                }
                CHECK(p.line.usage().n_open <= 1);
            }
        });
        const auto        wait_for = [](const std::atomic<int> & n) { // the test's time limit bounds it
            while (n == 0) {
                std::this_thread::yield();
            }
        };
        wait_for(n_learned); // no text runs
        p.line.begin(ask{.n_predict = 20}.as(run_mode::async, 4).make());
        p.target.wait_until_hanging();
        wait_for(n_busy);
        p.target.release();
        read_all(p.line);
        for (int k = 0; k < 10; ++k) {
            p.run(ask{.n_predict = 20}.as(run_mode::async, 4));
        }
        p.line.begin(ask{.n_predict = 400}.as(run_mode::async, 4).make());
        p.line.close();
        stop = true;
        asker.join();
        CHECK(n_learned > 0 && n_busy > 0);
    }
}

TEST(draft_hangs_and_everything_is_closed) {
    int n_hung = 0;
    for (int i = 0; i < 10; ++i) {
        pair      p(behaviour{.hang_at = i == 0 ? 0 : -1}, behaviour{.heeds_stop = false, .hang_at = i});
        const ask q = ask{.n_predict = 30}.as(run_mode::async, 4);
        if (i == 0) {
            p.begin_with_hanging_draft(q);
        } else {
            p.line.begin(q.make());
        }
        if (i % 2 == 0) {
            check_same(read_all(p.line), reference(p.lang, p.n_ctx, q), "with a draft that hangs");
        }
        std::atomic<bool> released{false};
        std::thread       later([&] {
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
            released = true;
            p.draft.release();
        });
        n_hung += p.draft.hanging() ? 1 : 0;
        p.line.close();
        CHECK(released || !p.draft.hanging(), "close waits for the draft's thread");
        check_closed(p);
        later.join();
    }
    CHECK(n_hung > 0);
}

TEST(close_stops_a_long_pass_of_the_draft) {
    for (const bool finished : {false, true}) {
        pair      p(behaviour{.hang_at = 0}, behaviour{.hang_at = 0}); // nobody releases the draft, but it heeds `stop`
        const ask q = ask{.n_predict = 30}.as(run_mode::async, 4);
        p.begin_with_hanging_draft(q);
        if (finished) {
            check_same(read_all(p.line), reference(p.lang, p.n_ctx, q), "with a draft that hangs");
        }
        CHECK(!p.line.current()->req().draft_done.load(), "it is in its pass");
        p.line.close();
        check_closed(p);
    }
}

TEST(a_draft_that_began_late_is_stopped) {
    enum class by : uint8_t { cancel, close, close_after_the_end, close_in_an_errand };
    for (const by what : {by::cancel, by::close, by::close_after_the_end, by::close_in_an_errand}) {
        // Nobody releases the draft, but it heeds `stop`. It begins when the target has its first tokens.
        pair p(behaviour{.hang_at = 8}, behaviour{.hang_at = 0}, false, {.shared = true});
        ask  q        = ask{.n_predict = 30}.as(run_mode::async, 4);
        q.plan.always = true;
        errand job{.what = errand::kind::save};
        p.begin_with_hanging_draft(q);
        CHECK(p.line.current()->req().draft_done.load(), "the draft reads by a request of its own");
        if (what == by::cancel) {
            p.line.cancel(*p.line.current());
            run_errand(p.line, job); // has its turn when the draft is free
            CHECK_EQ(p.target.n_saved.load(), 1);
        } else if (what != by::close) {
            check_same(read_all(p.line), reference(p.lang, p.n_ctx, q), "with a draft that hangs");
        }
        if (what == by::close_in_an_errand) {
            auto r = std::make_unique<request>();
            r->job = std::shared_ptr<errand>(std::shared_ptr<void>(), &job);
            p.line.begin(std::move(r));
            while (p.target.n_saved.load() == 0) { // the test's time limit bounds it
                std::this_thread::yield();
            }
        }
        p.line.close();
        CHECK(!p.line.running());
    }
}

TEST(close_with_more_to_send_than_the_ring_holds) {
    // The draft wakes up after the target has gone, with thousands of verdicts to answer and nobody to read.
    pair p(behaviour{.n_ctx = 6000, .hang_at = 0}, behaviour{.n_ctx = 6000, .heeds_stop = false, .hang_at = 0});
    p.begin_with_hanging_draft(ask{.n_predict = 5000}.as(run_mode::async, 4));
    read_all(p.line);
    std::thread later([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        p.draft.release();
    });
    p.line.close();
    later.join();
    check_closed(p);
}

TEST(a_pipeline_that_cannot_be_made_throws) {
    for (int i = 0; i < 20; ++i) {
        const behaviour b{.n_branch = 2};
        scripted_model  target(b);
        scripted_model  draft(b); // one branch too few for three texts
        std::string     why;
        try {
            const pipeline line(&target, &draft, {.n_texts = 3});
        } catch (const duo::error & e) {
            why = e.what();
            CHECK(e.kind() == error_kind::busy);
        }
        CHECK(why.find("no free branch") != std::string::npos, why);
    }
}
