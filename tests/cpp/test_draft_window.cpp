// A draft that reads the first tokens of a prompt and its last ones: which rows it evaluates, what stays in its cache,
// and that the text does not depend on it.
#include "pair.h"
#include "plan/text_lengths.h"

using namespace duo_test;

namespace {

ask long_ask(int32_t n_prompt, int32_t n_window, int32_t n_predict = 30) {
    ask q{.n_predict = n_predict};
    q.prompt.resize(size_t(n_prompt));
    for (size_t i = 0; i < q.prompt.size(); ++i) {
        q.prompt[i] = token_id(1 + (7 * i + i / 11) % 39);
    }
    q               = q.as(run_mode::sync, 4);
    q.plan.n_window = n_window;
    return q;
}

// What the draft's cache holds of the text that ended last.
cache_image look_at(pair & p) {
    errand look;
    CHECK_EQ(run_errand(p.line, look).finish, finish_reason::stop);
    return look.draft;
}

void check_holds(const cache_image & image, const std::vector<token_id> & text, int32_t n_first, int32_t n_left_out,
                 const std::string & note) {
    CHECK_EQ(image.n_left_out, n_left_out, note);
    REQUIRE(image.tokens.size() >= size_t(n_first) && image.tokens.size() + size_t(n_left_out) <= text.size(), note);
    CHECK(std::equal(text.begin(), text.begin() + n_first, image.tokens.begin()), note + ": the first tokens");
    CHECK(std::equal(image.tokens.begin() + n_first, image.tokens.end(), text.begin() + n_first + n_left_out),
          note + ": and the last ones");
}

std::vector<token_id> whole(const ask & q, const answer & a) {
    std::vector<token_id> text = q.prompt;
    text.insert(text.end(), a.tokens.begin(), a.tokens.end());
    return text;
}

} // namespace

TEST(rows_that_are_read) {
    constexpr int32_t sink = draft_window::n_sink;
    const auto        rows = [](const draft_window & had, int32_t n_same, int32_t n_text, int32_t n_window) {
        return draft_reading::of(had, n_same, n_text, n_window);
    };
    CHECK_EQ(rows({}, 0, 1000, n_window_all).n_rows, 1000);
    CHECK_EQ(rows({}, 0, 1000, n_window_auto).n_rows, 1000);
    CHECK_EQ(rows({}, 0, sink + 64, 64).window.n_left_out, 0);
    const draft_reading fresh = rows({}, 0, 1000, 64);
    CHECK_EQ(fresh.n_rows, sink + 64);
    CHECK_EQ(fresh.window.n_first, sink);
    CHECK_EQ(fresh.window.begin_of_rest(), 1000 - 64);
    // The text goes on: what was left out stays left out.
    CHECK_EQ(rows(fresh.window, 1010, 1050, 64).n_rows, 40);
    CHECK_EQ(rows(fresh.window, 1010, 1050, 64).window.n_left_out, fresh.window.n_left_out);
    // It goes on for longer than a window: only the first tokens stay.
    CHECK_EQ(rows(fresh.window, 1010, 2000, 64).n_rows, 64);
    CHECK_EQ(rows(fresh.window, 1010, 2000, 64).n_kept, sink);
    // All is wanted, or the texts part where tokens were left out.
    CHECK_EQ(rows(fresh.window, 1010, 1050, n_window_all).n_rows, 1050 - sink);
    CHECK_EQ(rows(fresh.window, 500, 1050, n_window_all).n_rows, 1050 - sink);
    CHECK_EQ(rows(fresh.window, 5, 1050, n_window_all).n_rows, 1045);
    // What is cached of the beginning is not read again.
    CHECK_EQ(rows({}, 300, 1000, 64).n_rows, 64);
    CHECK_EQ(rows({}, 300, 1000, 64).window.n_first, 300);
    for (int32_t n_same = 0; n_same < 120; n_same += 7) {
        for (int32_t n_text = n_same + 1; n_text < 160; n_text += 5) {
            for (const int32_t n : {n_window_all, 1, 20, 64}) {
                for (const draft_window had : {draft_window{}, draft_window{.n_first = sink, .n_left_out = 30}}) {
                    const draft_reading r = rows(had, n_same, n_text, n);
                    CHECK_EQ(r.n_kept + r.n_rows, r.window.n_rows(n_text));
                    CHECK(r.n_rows > 0 && (n == n_window_all || r.n_rows <= sink + n));
                    CHECK(r.window.n_left_out == 0 || r.window.begin_of_rest() < n_text);
                    for (int32_t row = 0; row < r.window.n_rows(n_text); ++row) {
                        CHECK_EQ(r.window.row_of(r.window.pos_of(row)), row);
                    }
                }
            }
        }
    }
}

TEST(a_window_is_all_that_is_read) {
    for (const int32_t n : {1, 8, 64, 200, n_window_all}) {
        const std::string note = "window " + std::to_string(n);
        pair              p({}, behaviour{.agree = 0.8});
        const ask         q = long_ask(200, n);
        const answer      a = p.run(q, note);
        CHECK(a.stats.n_accepted > 0, note);
        const int32_t n_left_out = n == n_window_all ? 0 : std::max(0, 200 - n - draft_window::n_sink);
        CHECK_EQ(p.draft.n_skipping.load() > 0, n_left_out > 0, note);
        const cache_image held = look_at(p);
        check_holds(held, whole(q, a), n_left_out > 0 ? draft_window::n_sink : 0, n_left_out, note);
    }
}

TEST(later_texts_keep_the_cut) {
    pair      p({}, behaviour{.agree = 0.8});
    const ask q = long_ask(200, 64);
    answer    a = p.run(q);
    // A conversation goes on: what is new is read, behind what was.
    ask next    = q;
    next.prompt = whole(q, a);
    next.prompt.insert(next.prompt.end(), {5, 6, 7});
    a = p.run(next, "next");
    check_holds(look_at(p), whole(next, a), draft_window::n_sink, 200 - 64 - draft_window::n_sink, "next");
    // Another text with the same first half.
    ask other    = q;
    other.prompt = {q.prompt.begin(), q.prompt.begin() + 100};
    other.prompt.insert(other.prompt.end(), 120, 9);
    a = p.run(other, "other");
    check_holds(look_at(p), whole(other, a), draft_window::n_sink, 220 - 64 - draft_window::n_sink, "other");
    // The same text, now all of it, and then its end again: the beginning is cached.
    ask all           = other;
    all.plan.n_window = n_window_all;
    a                 = p.run(all, "all");
    check_holds(look_at(p), whole(all, a), 0, 0, "all");
    all.prompt.resize(150);
    all.prompt.insert(all.prompt.end(), 100, 8);
    all.plan.n_window = 20;
    a                 = p.run(all, "end");
    check_holds(look_at(p), whole(all, a), 150, 250 - 20 - 150, "end");
}

// A draft with a shorter context than the text drafts as long as what it reads fits.
TEST(a_draft_with_a_short_context) {
    pair         p({}, behaviour{.n_ctx = 128, .agree = 0.9});
    const answer a = p.run(long_ask(300, 64));
    CHECK(a.stats.n_accepted > 0);
    CHECK_EQ(p.run(long_ask(301, n_window_all)).stats.n_accepted, 0);
}

TEST(a_recurrent_draft_reads_all) {
    pair         p({}, behaviour{.agree = 0.8, .windows = false, .undo = undo_kind::copy});
    const answer a = p.run(long_ask(200, 16));
    CHECK(a.stats.n_accepted > 0);
    CHECK_EQ(look_at(p).n_left_out, 0);
}

TEST(what_was_left_out_is_not_saved) {
    pair      p({}, behaviour{.agree = 0.8});
    const ask q = long_ask(200, 32);
    p.run(q);
    errand saved{.what = errand::kind::save};
    CHECK_EQ(run_errand(p.line, saved).finish, finish_reason::stop);
    CHECK(saved.draft.tokens.empty() && saved.draft.saved.empty());
    CHECK(saved.target.tokens.size() >= q.prompt.size());
    errand short_one{.what = errand::kind::save, .n_keep = 10}; // before what was left out
    CHECK_EQ(run_errand(p.line, short_one, q.prompt).finish, finish_reason::stop);
    CHECK_EQ(short_one.draft.tokens, std::vector<token_id>(q.prompt.begin(), q.prompt.begin() + 10));
    pair   other({}, behaviour{.agree = 0.8});
    errand job = given(saved);
    CHECK_EQ(run_errand(other.line, job).finish, finish_reason::stop);
    CHECK(other.run(q, "restored").stats.n_accepted > 0);
    CHECK(p.run(q, "again").stats.n_accepted > 0);
}

TEST(what_is_to_come_is_foreseen_from_earlier_texts) {
    text_lengths l;
    CHECK_EQ(l.to_come(0, 4096), 256);
    CHECK_EQ(l.to_come(0, 64), 64, "never more than the limit");
    CHECK_EQ(l.to_come(1000, 4096), 1000, "as long again");
    for (int32_t i = 0; i < 20; ++i) {
        l.on_end(1, true); // a limit, and no length
        l.on_end(40, false);
        l.on_end(0, true); // it was read only
    }
    CHECK_EQ(l.to_come(0, 4096), 40);
    CHECK_EQ(l.to_come(10, 4096), 30);
    CHECK_EQ(l.to_come(30, 4096), 30);
    CHECK_EQ(l.to_come(30, 5), 5);
    l.on_end(440, true); // one long text is not the rule
    CHECK_EQ(l.to_come(0, 4096), 140);
}

// Reading is priced. Twenty passes cannot save what it takes to read all of this prompt, so at most its end is read.
TEST(shared_cores_never_read_more_than_can_pay) {
    const behaviour target{.n_ctx = 8192, .n_batch = 8, .pass_us = 1500};
    behaviour       draft = target;
    draft.pass_us         = 1000;
    pair_prior prior{.shared = true, .step_us = 1000.0};
    prior.pass_us = {{1, 1500.0}, {4, 1500.0}, {16, 1500.0}};
    pair p(target, draft, false, prior);
    p.run(long_ask(40, n_window_auto, 60).as(run_mode::async), "short");
    const ask q = long_ask(4000, n_window_auto, 20).as(run_mode::async);
    p.run(q, "long");
    CHECK(look_at(p).tokens.size() < 1500);
    ask all           = q;
    all.plan.n_window = 2000; // who asks for more gets it, if anything is read
    p.run(all, "asked");
}
