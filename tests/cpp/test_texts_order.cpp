// Several texts: who goes first, and who waits for whom.
#include <thread>

#include "pair.h"
#include "remote/verify_host.h"

using namespace duo_test;

namespace {

ask ask_of(size_t n_prompt, int32_t n_predict) {
    ask q{.prompt = std::vector<token_id>(n_prompt, 1), .n_predict = n_predict};
    for (size_t i = 0; i < n_prompt; ++i) {
        q.prompt[i] = token_id(1 + (n_prompt + i * i) % 39); // no two of them begin alike
    }
    return q.as(run_mode::plain);
}

// Holds the target at a text's first token.
struct gate : token_hook {
    bool on_row(std::span<const token_id>, std::span<float>) override {
        is_open.wait(false);
        return true;
    }
    void open() {
        is_open.store(true);
        is_open.notify_all();
    }
    std::atomic<bool> is_open{false};
};

// A target that hangs in its n-th pass, and texts that are begun before and meanwhile.
struct scene {
    scene(const behaviour & b, int32_t n_texts) : model(b), target(b), line(&target, nullptr, {.n_texts = n_texts}) {}

    std::shared_ptr<open_text> begin(const ask & q, std::shared_ptr<token_hook> hook = {}) {
        auto req  = q.make();
        req->hook = std::move(hook);
        asks.push_back(q);
        return texts.emplace_back(line.begin(std::move(req)));
    }

    // Reads all texts to their ends.
    void read() {
        for (size_t i = 0; i < texts.size(); ++i) {
            answer a;
            read_some(line, *texts[i], a, size_t(-1));
            check_same(a, reference(model.lang, model.n_ctx, asks[i]), std::to_string(i));
        }
    }

    behaviour                               model;
    scripted_model                          target;
    pipeline                                line;
    std::vector<ask>                        asks;
    std::vector<std::shared_ptr<open_text>> texts;
};

} // namespace

TEST(a_short_prompt_does_not_wait_for_a_long_one) {
    scene      s({.n_ctx = 4096, .n_batch = 512, .n_spare = 4000, .hang_at = 20}, 3);
    const auto written = s.begin(ask_of(3, 400));
    s.target.wait_until_hanging();
    const auto long_one  = s.begin(ask_of(3000, 5));
    const auto short_one = s.begin(ask_of(40, 5));
    s.target.release();
    s.read();
    CHECK(short_one->req().stats.t_end_us < long_one->req().stats.t_first_us);
    CHECK(long_one->req().stats.t_first_us < written->req().stats.t_end_us); // it goes on meanwhile
}

TEST(a_long_prompt_goes_on_whatever_comes) {
    scene      s({.n_ctx = 4096, .n_batch = 512, .n_spare = 4000, .hang_at = 20}, 3);
    const auto written = s.begin(ask_of(3, 400));
    s.target.wait_until_hanging();
    const auto long_one = s.begin(ask_of(1000, 5));
    for (size_t i = 0; i < 100; ++i) { // one after the other, each shorter than what is left of it
        s.begin(ask_of(50 + i, 1));
    }
    s.target.release();
    s.read();
    CHECK(long_one->req().stats.t_end_us < s.texts.back()->req().stats.t_begin_us);
}

TEST(a_long_prompt_leaves_rows_to_those_that_write) {
    scene      s({.n_ctx = 4096, .n_batch = 64, .n_spare = 4000, .hang_at = 2}, 2);
    const auto long_one = s.begin(ask_of(3000, 5));
    s.target.wait_until_hanging();
    const auto written = s.begin(ask_of(2, 20));
    s.target.release();
    s.read();
    CHECK(written->req().stats.t_end_us < long_one->req().stats.t_first_us);
}

TEST(a_parked_text_goes_on_before_later_ones_begin) {
    scene      s({.n_ctx = 400, .n_batch = 128, .n_spare = 64, .hang_at = 60}, 3);
    const auto held = std::make_shared<gate>();
    s.begin(ask_of(250, 150), held);
    const auto parked = s.begin(ask_of(200, 150)); // both together do not fit
    held->open();
    s.target.wait_until_hanging();
    REQUIRE_EQ(s.line.usage().target.n_parked, 1);
    for (size_t i = 0; i < 8; ++i) {
        s.begin(ask_of(101 + i, 60));
    }
    s.target.release();
    s.read();
    CHECK(parked->req().stats.t_end_us < s.texts.back()->req().stats.t_begin_us);
    CHECK(parked->req().stats.t_end_us < s.texts[4]->req().stats.t_end_us);
}

// The rows of a newcomer that must wait need no room, so nobody else has to wait for them.
TEST(a_text_that_must_wait_takes_no_other_one_along) {
    scene      s({.n_ctx = 400, .n_batch = 512, .n_spare = 64, .hang_at = 5}, 3);
    const auto held = std::make_shared<gate>();
    const auto a    = s.begin(ask_of(200, 40), held);
    const auto b    = s.begin(ask_of(201, 20)); // both together fit
    held->open();
    s.target.wait_until_hanging();
    const auto newcomer = s.begin(ask_of(60, 5));
    s.target.release();
    s.read();
    CHECK(b->req().stats.t_end_us < a->req().stats.t_end_us);
    CHECK(newcomer->req().stats.t_first_us > b->req().stats.t_end_us);
}

// Threads that have their chunks may be busy with them for long. Another one that waits reads the ring meanwhile.
TEST(readers_that_are_busy_stop_no_other_reader) {
    for (int round = 0; round < 5; ++round) {
        scene s({.n_ctx = 4096, .n_batch = 512, .n_spare = 4000, .pass_us = 1000, .hang_at = 0}, 2);
        s.begin(ask_of(3, 400));
        s.begin(ask_of(300, 1)); // its token comes later
        s.target.wait_until_hanging();
        const auto        begun_in_order = [] { std::this_thread::sleep_for(std::chrono::milliseconds(10)); };
        std::atomic<bool> came[2]{};
        const auto        read = [&s, &came](size_t i) {
            text_chunk c;
            came[i] = s.line.next(*s.texts[i], c, now_us() + patience_us / 4);
        };
        std::thread first(read, 0); // it reads the ring
        begun_in_order();
        std::thread for_many([&s] { s.line.wait_news(0, now_us() + patience_us); });
        begun_in_order();
        std::thread second(read, 1);
        begun_in_order();
        s.target.release();
        first.join();
        for_many.join();
        second.join();
        CHECK(came[0] && came[1]);
        s.line.cancel_all();
    }
}

// A request waits for an errand, which waits for a text.
TEST(a_request_that_waits_ends_when_it_is_cancelled) {
    // More tokens than the ring holds, so that it does not end while nobody reads.
    scene      s({.n_ctx = 20000, .n_spare = 64, .pass_us = 200, .hang_at = 20}, 3);
    const auto written = s.begin(ask_of(3, 10000));
    s.target.wait_until_hanging();
    errand look;
    auto   r          = std::make_unique<request>();
    r->job            = std::shared_ptr<errand>(std::shared_ptr<void>(), &look);
    const auto job    = s.line.begin(std::move(r));
    const auto behind = s.line.begin(ask_of(5, 10).make());
    s.target.release();
    s.line.cancel(*behind);
    CHECK(!s.line.ended(*written));
    CHECK(look.target.held.empty());
    s.line.cancel(*job); // errands too
    CHECK(!s.line.ended(*written));
    CHECK(look.target.held.empty());
    s.line.cancel(*written);
    CHECK(!s.line.running());
}

// plan_params::always is a client's wish for its own text. A busy machine's delays are small beside passes of 2 ms.
// No draft comes, so guesses never pay. Passes on a busy machine may hide that for the length of some texts.
TEST(on_a_host_no_client_makes_all_texts_speculate) {
    scripted_model target({.n_branch = 8, .pass_us = 2000});
    verify_host    host(target, 2);
    int            n_rested = 0; // texts of a round
    for (uint64_t id = 1; n_rested < 2 && id < 40; id += 2) {
        n_rested = 0;
        for (int32_t i = 0; i < 2; ++i) {
            text_params p;
            p.id            = request_node(id + uint64_t(i));
            p.prompt        = {token_id(i + 1), 5};
            p.n_predict     = 200;
            p.sampling.temp = 0.0f;
            p.plan.n_max    = 4;
            p.plan.always   = i == 0;
            host.begin(i, p);
        }
        for (int32_t i = 0; i < 2; ++i) {
            std::vector<verdict_msg> verdicts;
            std::vector<chunk_msg>   chunks;
            while (host.running(i)) {
                host.take(i, verdicts, chunks, now_us() + wait_us);
            }
            const verify_stats & st = host.current(i)->req().stats;
            CHECK_EQ(st.n_predicted, 200);
            n_rested += st.n_passes_in[size_t(stance::rest)] > 0 ? 1 : 0;
        }
    }
    CHECK_EQ(n_rested, 2);
}

// Both begin while the draft's cache is empty, and only one fits.
TEST(a_draft_that_has_no_room_beside_another_one_waits) {
    const behaviour target{.n_ctx = 64, .n_branch = 8, .n_spare = 200};
    const behaviour small{.n_ctx = 64, .n_branch = 8, .n_spare = 0, .pass_us = 200};
    for (int i = 0; i < 20; ++i) {
        scripted_model                          t(target);
        scripted_model                          d(small);
        pipeline                                line(&t, &d, {.n_texts = 2});
        std::vector<std::shared_ptr<open_text>> texts;
        std::vector<ask>                        asks;
        for (size_t n : {size_t(40), size_t(41)}) {
            asks.push_back(ask_of(n, 12).as(run_mode::async, 4));
            texts.push_back(line.begin(asks.back().make()));
        }
        for (size_t j = 0; j < 2; ++j) {
            answer a;
            read_some(line, *texts[j], a, size_t(-1));
            check_same(a, reference(target.lang, target.n_ctx, asks[j]), std::to_string(j));
            CHECK_EQ(a.warning, "");
        }
    }
}

// A text goes to the slot that has its beginning, which need not be the reader's place of that number.
TEST(drafts_work_for_texts_that_come_back_in_another_order) {
    const language                          lang{.seed = 8};
    scripted_model                          t(behaviour{.lang = lang, .n_branch = 16, .pass_us = 300});
    scripted_model                          m(behaviour{.lang = lang, .n_branch = 16, .agree = 1.0});
    pipeline                                line(&t, &m, {.n_texts = 4, .prior = {.shared = true}});
    std::vector<std::shared_ptr<open_text>> texts(4);
    for (const bool again : {false, true}) {
        std::vector<ask> asks;
        for (int i = 0; i < 4; ++i) {
            const auto first = token_id(again ? 3 - i : i);
            asks.push_back(ask{.prompt = {first, first, first, first}, .n_predict = 40}.as(run_mode::sync, 2));
            asks.back().plan.always = true; // on a loaded machine, too
            texts[size_t(i)]        = line.begin(asks.back().make());
        }
        for (size_t i = 0; i < 4; ++i) {
            answer a;
            read_some(line, *texts[i], a, size_t(-1));
            check_same(a, reference(lang, 512, asks[i]), std::to_string(i));
            CHECK_EQ(a.warning, "", std::to_string(i));
            CHECK(a.stats.n_accepted > 0, std::to_string(i)); // a draft that was lost has none
            CHECK(!again || a.stats.n_prompt_cached > 1);
        }
    }
}

TEST(more_texts_than_slots_wait_in_the_order_of_their_begin) {
    const language                          lang{.seed = 6};
    scripted_model                          t(behaviour{.lang = lang, .n_branch = 2});
    pipeline                                line(&t, nullptr, {.n_texts = 2});
    std::vector<std::shared_ptr<open_text>> texts;
    for (int i = 0; i < 6; ++i) {
        texts.push_back(line.begin(ask{.n_predict = 40}.make()));
    }
    CHECK(line.n_queued() >= 3);
    line.cancel(*texts[4]); // while it waits
    std::vector<answer> answers(6);
    for (size_t i = 6; i-- > 0;) { // whoever reads, all texts go on
        if (i != 4) {
            read_some(line, *texts[i], answers[i], size_t(-1));
            check_same(answers[i], reference(lang, 512, ask{.n_predict = 40}), std::to_string(i));
        }
    }
    for (size_t i = 2; i < 6; ++i) {
        CHECK(i == 4 || answers[i].stats.t_begin_us >= answers[i - 2].stats.t_begin_us);
    }
    CHECK(!line.running());
}

TEST(a_text_may_choose_its_place_and_leave_the_cache_unused) {
    const language lang{.seed = 8};
    scripted_model t(behaviour{.lang = lang, .n_branch = 4});
    pipeline       line(&t, nullptr, {.n_texts = 4});
    for (const int32_t wanted : {2, 0, 3, -1, 9}) {
        for (const bool use_cache : {true, false}) {
            auto req        = ask{.n_predict = 8}.make();
            req->wanted     = wanted;
            req->use_cache  = use_cache;
            const auto text = line.begin(std::move(req));
            answer     a;
            read_some(line, *text, a, size_t(-1));
            check_same(a, reference(lang, 512, ask{.n_predict = 8}), std::to_string(wanted));
            const int32_t place = text->req().place.load();
            CHECK(wanted >= 0 && wanted < 4 ? place == wanted : place >= 0 && place < 4, std::to_string(place));
            CHECK(use_cache || a.stats.n_prompt_cached == 0);
        }
    }
}
