// The draft, or the target, in another process: a link and a host with a carrier between them that delays, cuts and
// comes back at random. The text is what the target alone would have written, whatever happens on the way.
#include <thread>

#include "pair.h"
#include "remote/draft_host.h"
#include "remote/target_link.h"
#include "remote/verify_host.h"

using namespace duo_test;

namespace {

struct weather {
    double   p_cut    = 0.0; // chance that the link is lost, in each round of the carrier
    int32_t  delay_us = 0;   // a round takes up to so long
    int32_t  away_us  = 0;   // it stays away up to so long
    uint64_t seed     = 1;
};

// One thread carries both ways until it is told to stop; what it holds when the link is cut is lost.
template <typename Carry> struct carrier {
    carrier(const weather & w, Carry & c) : thread([this, w, &c] { run(w, c); }) {}
    ~carrier() {
        stop = true;
        thread.join();
    }

    void run(const weather & w, Carry & c) {
        dice d(w.seed);
        while (!stop) {
            c.connect();
            while (!stop && !d.chance(w.p_cut)) {
                c.round(stop);
                std::this_thread::sleep_for(std::chrono::microseconds(w.delay_us == 0 ? 0 : d.below(w.delay_us)));
            }
            c.cut();
            n_cuts += stop ? 0 : 1;
            std::this_thread::sleep_for(std::chrono::microseconds(w.away_us == 0 ? 0 : d.below(w.away_us)));
        }
    }

    std::atomic<bool>    stop{false};
    std::atomic<int32_t> n_cuts{0};
    std::thread          thread;
};

// The target here, the draft on a host.
struct draft_elsewhere {
    draft_elsewhere(const behaviour & t, const behaviour & d)
        : target(t), draft(d), line(&target, nullptr, {.remote_draft = true}),
          link(std::make_shared<draft_lines>(line.ends(), 1, target.facts().n_vocab), 0), host(draft, 1) {}

    void connect() { link.ready(); }
    void cut() {
        link.lost();
        while (!host.end(0, now_us() + patience_us)) {}
        working = false;
    }
    void round(const std::atomic<bool> &) {
        if (!working) {
            if (const auto t = link.wait_begin(now_us() + 200)) {
                host.begin(0, *t);
                working = true;
            }
            return;
        }
        std::vector<verdict_msg> verdicts;
        std::vector<node_msg>    nodes;
        link.take(verdicts, now_us() + 50);
        host.give(0, verdicts);
        host.take(0, nodes, now_us() + 50);
        link.give(nodes);
        if (!verdicts.empty() && verdicts.back().what == verdict_msg::kind::end) {
            REQUIRE(host.end(0, now_us() + patience_us), "the host lets go");
            working = false;
        }
    }

    scripted_model target;
    scripted_model draft;
    pipeline       line;
    draft_link     link;
    draft_host     host;
    bool           working = false;
};

// The draft and the reader here, the target on a host.
struct target_elsewhere {
    // n_fewer: tokens that only the target has.
    target_elsewhere(const behaviour & t, const behaviour & d, int32_t n_fewer = 0)
        : target(t), draft(d), line(nullptr, &draft, {.n_ctx_remote = t.n_ctx}),
          link(std::make_shared<target_lines>(line.ends(), 1, draft.facts().n_vocab - n_fewer, t.n_ctx), 0),
          host(target, 1) {}

    void connect() {
        if (link.running()) {
            host.begin(0, link.restart());
        }
    }
    void cut() {
        host.cancel(0);
        std::vector<verdict_msg> verdicts;
        std::vector<chunk_msg>   chunks;
        host.take(0, verdicts, chunks, 0); // lost on the way
    }
    void round(const std::atomic<bool> & stop) {
        if (!link.running()) {
            if (const auto t = link.wait_begin(now_us() + 200)) {
                host.begin(0, *t);
            }
            return;
        }
        if (link.cancelled() || stop) {
            host.cancel(0);
            link.stopped();
            return;
        }
        std::vector<verdict_msg> verdicts;
        std::vector<chunk_msg>   chunks;
        std::vector<node_msg>    nodes;
        link.take(nodes, now_us() + 50);
        host.give(0, nodes);
        host.take(0, verdicts, chunks, now_us() + 50);
        if (!chunks.empty() && chunks.back().what == chunk_msg::kind::end) {
            link.add_stats(host.current(0)->req().stats);
        }
        link.give(verdicts, chunks);
    }

    scripted_model target;
    scripted_model draft;
    pipeline       line;
    target_link    link;
    verify_host    host;
};

// Texts of all sorts over one link.
template <typename Pair> int32_t run_texts(const weather & w, double agree, int32_t n_texts, int32_t * n_accepted) {
    const language  lang{.seed = w.seed, .p_end = 0.002};
    const behaviour t{.lang = lang, .pass_us = 100};
    const behaviour d{.lang = lang, .second = 0.5, .agree = agree, .accent = w.seed, .pass_us = 20};
    Pair            p(t, d);
    carrier<Pair>   way(w, p);
    dice            chance(w.seed + 100);
    for (int32_t i = 0; i < n_texts; ++i) {
        ask q{.n_predict = int32_t(20 + chance.below(200))};
        q = q.as(i % 4 == 3 ? run_mode::sync : run_mode::async, i % 2 == 0 ? n_draft_auto : 4);
        if (i % 3 == 1) {
            q.sampling = {.temp = 0.8f, .presence_penalty = 0.5f, .repeat_last_n = 4, .seed = w.seed};
        }
        if (i % 3 == 2) {
            q.stop       = {"abca", "\xe2\x82\xac"};
            q.n_logprobs = 2;
        }
        const std::string note = "weather " + std::to_string(w.seed) + ", text " + std::to_string(i);
        p.line.begin(q.make());
        const answer a = read_all(p.line);
        check_same(a, reference(lang, t.n_ctx, q), note);
        if (q.n_logprobs >= 0) {
            CHECK_EQ(a.tops.size(), a.tokens.size(), note);
        }
        CHECK_EQ(a.stats.n_predicted, int32_t(a.tokens.size()), note);
        *n_accepted += a.stats.n_accepted;
        // What is counted last may come too late.
        CHECK(a.stats.n_accepted < 20 || p.line.current()->req().draft->n_nodes > 0, note);
    }
    return way.n_cuts;
}

} // namespace

// The reader could not tell their texts.
TEST(alternatives_that_only_the_target_has_are_left_out) {
    const language            lang{.seed = 5};
    const behaviour           t{.lang = lang};
    constexpr int32_t         n_fewer = 10;
    target_elsewhere          p(t, t, n_fewer);
    carrier<target_elsewhere> way({}, p);
    const ask                 q = ask{.n_predict = 60, .n_logprobs = 4}.as(run_mode::plain);
    p.line.begin(q.make());
    const answer   a     = read_all(p.line);
    const token_id least = p.draft.facts().n_vocab - n_fewer;
    size_t         n     = 0;
    CHECK_EQ(a.tops.size(), size_t(60));
    for (const auto & top : a.tops) {
        n += top.size();
        CHECK(std::ranges::all_of(top, [least](const candidate & c) { return c.token < least; }));
    }
    CHECK(n > 0 && n < 60 * 4, std::to_string(n));
}

TEST(a_draft_elsewhere_is_used) {
    int32_t n_accepted = 0;
    run_texts<draft_elsewhere>({.seed = 3}, 0.9, 12, &n_accepted);
    CHECK(n_accepted > 10, std::to_string(n_accepted)); // how many hangs on the machine
}

TEST(a_target_elsewhere_writes_the_text) {
    int32_t n_accepted = 0;
    run_texts<target_elsewhere>({.seed = 3}, 0.9, 12, &n_accepted);
    CHECK(n_accepted > 10, std::to_string(n_accepted)); // how many hangs on the machine
}

TEST(the_text_survives_a_draft_that_comes_and_goes) {
    int32_t n_accepted = 0;
    int32_t n_cuts     = 0;
    for (uint64_t seed = 0; seed < 8; ++seed) {
        n_cuts += run_texts<draft_elsewhere>({.p_cut = 0.03, .delay_us = 300, .away_us = 2000, .seed = seed}, 0.8, 8,
                                             &n_accepted);
    }
    CHECK(n_cuts > 20, std::to_string(n_cuts));
    CHECK(n_accepted > 5, std::to_string(n_accepted));
}

TEST(the_text_survives_a_target_that_comes_and_goes) {
    int32_t n_accepted = 0;
    int32_t n_cuts     = 0;
    for (uint64_t seed = 0; seed < 8; ++seed) {
        n_cuts += run_texts<target_elsewhere>({.p_cut = 0.03, .delay_us = 300, .away_us = 2000, .seed = seed}, 0.8, 8,
                                              &n_accepted);
    }
    CHECK(n_cuts > 20, std::to_string(n_cuts));
    CHECK(n_accepted > 5, std::to_string(n_accepted));
}

TEST(a_text_can_be_stopped_over_a_link) {
    const behaviour t{.pass_us = 200};
    draft_elsewhere far(t, t);
    {
        carrier<draft_elsewhere> way({.delay_us = 200}, far);
        for (int i = 0; i < 10; ++i) {
            far.line.begin(ask{.n_predict = 400}.make());
            answer a;
            read_some(far.line, a, size_t(i));
            far.line.cancel(*far.line.current());
            CHECK(!far.line.running());
        }
    }
    target_elsewhere          gone(t, t);
    carrier<target_elsewhere> way({.delay_us = 200}, gone);
    for (int i = 0; i < 10; ++i) {
        gone.line.begin(ask{.n_predict = 400}.make());
        answer a;
        read_some(gone.line, a, size_t(i));
        gone.line.cancel(*gone.line.current());
        CHECK(!gone.line.running());
    }
}

TEST(a_link_that_never_comes_up_costs_nothing) {
    const behaviour b{};
    draft_elsewhere p(b, b);
    for (int i = 0; i < 3; ++i) {
        const ask q{.n_predict = 60};
        p.line.begin(q.make());
        const answer a = read_all(p.line);
        check_same(a, reference(b.lang, b.n_ctx, q), "no link");
        CHECK_EQ(a.stats.n_drafted, 0);
        CHECK_EQ(a.stats.wait_us, 0);
    }
}

TEST(a_failed_link_reports_why_the_text_ended) {
    const behaviour  b{};
    target_elsewhere p(b, b);
    p.line.begin(ask{.n_predict = 60}.make());
    REQUIRE(p.link.wait_begin(now_us() + patience_us).has_value(), "the text is offered");
    p.link.give({}, std::vector<chunk_msg>{{.token = 5}, {.token = 7}});
    p.link.fail({.kind = error_kind::peer_lost, .sentence = "the host is gone"});
    const answer a = read_all(p.line);
    CHECK_EQ(a.finish, finish_reason::error);
    CHECK_EQ(a.error.sentence, std::string("the host is gone"));
    CHECK(a.error.kind == error_kind::peer_lost);
    CHECK_EQ(a.tokens, (std::vector<token_id>{5, 7}));
}

TEST(a_text_that_lacks_only_its_end_gets_it) {
    const behaviour b{.lang = {.seed = 5, .p_end = 0.05}};
    const ask       q{.n_predict = 300, .stop = {"ab", "ca"}};
    const answer    want = reference(b.lang, b.n_ctx, q);
    REQUIRE_EQ(want.finish, finish_reason::stop, "it ends by itself");
    scripted_model target(b);
    verify_host    host(target, 1);
    text_params    text = *q.make();
    text.id             = request_node(1);
    text.prompt.insert(text.prompt.end(), want.tokens.begin(), want.tokens.end());
    text.n_generated = int32_t(want.tokens.size());
    text.n_predict -= text.n_generated;
    host.begin(0, text);
    std::vector<verdict_msg> verdicts;
    std::vector<chunk_msg>   chunks;
    while (host.running(0)) {
        host.take(0, verdicts, chunks, now_us() + 10000);
    }
    REQUIRE_EQ(chunks.size(), size_t(1), "no token more");
    CHECK_EQ(chunks[0].finish, finish_reason::stop);
}
