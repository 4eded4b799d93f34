// Memory that runs out: a text ends with an error, nobody else's does, and the next one is right.
#include <new>
#include <thread>

#include "pair.h"

using namespace duo_test;

// One thread reads for all. A chunk that it cannot keep ends the text of the chunk, and only that.
TEST(a_reader_that_fails_leaves_the_other_readers_their_texts) {
    struct mute_model : scripted_model {
        using scripted_model::scripted_model;
        std::string piece(token_id t) const override {
            if (t == bad && std::this_thread::get_id() != worker) {
                throw std::bad_alloc();
            }
            return scripted_model::piece(t);
        }
        token_id        bad = -1;
        std::thread::id worker;
    };
    const behaviour b{.n_branch = 2, .pass_us = 100, .is_target = true};
    const ask       asks[] = {ask{.prompt = {3, 1, 2}, .n_predict = 60}, ask{.prompt = {5, 9, 1, 7}, .n_predict = 60}};
    const answer    want[] = {reference(b.lang, b.n_ctx, asks[0]), reference(b.lang, b.n_ctx, asks[1])};
    int             n_runs = 0;
    for (const token_id bad : want[0].tokens) {
        if (bad == 0 || std::count(want[1].tokens.begin(), want[1].tokens.end(), bad) > 0) {
            continue;
        }
        ++n_runs;
        mute_model target(b);
        target.bad = bad;
        pipeline                         line(&target, nullptr,
                                              {.n_texts = 2, .on_target_thread = [&target] { target.worker = std::this_thread::get_id(); }});
        const std::shared_ptr<open_text> texts[] = {line.begin(asks[0].make()), line.begin(asks[1].make())};
        answer                           got[2];
        std::thread                      other([&] { read_some(line, *texts[1], got[1], size_t(-1)); });
        read_some(line, *texts[0], got[0], size_t(-1));
        other.join();
        const auto n_right =
            size_t(std::find(want[0].tokens.begin(), want[0].tokens.end(), bad) - want[0].tokens.begin());
        CHECK_EQ(got[0].finish, finish_reason::error);
        CHECK(got[0].error.kind == error_kind::does_not_fit, got[0].error.sentence);
        CHECK_EQ(got[0].tokens,
                 std::vector<token_id>(want[0].tokens.begin(), want[0].tokens.begin() + std::ptrdiff_t(n_right)));
        check_same(got[1], want[1], "the other text");
        CHECK(!line.running());
        target.bad = -1;
        answer again;
        read_some(line, *line.begin(asks[0].make()), again, size_t(-1));
        check_same(again, want[0], "the next text");
    }
    CHECK(n_runs > 0);
}
