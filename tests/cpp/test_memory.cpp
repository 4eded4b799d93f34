// Memory that runs out: a text ends with an error, nobody else's does, and the next one is right.
#include <cstdlib>
#include <new>
#include <thread>

#include "pair.h"

using namespace duo_test;

namespace {

// The memory of a thread. The nth allocation from now fails, or all from the nth on.
class memory {
  public:
    void fail_at(int64_t n, bool lasts) {
        lasts_ = lasts;
        n_failed_.store(0);
        n_left_.store(n);
    }
    void relax() { n_left_.store(-1); }
    bool failed() const { return n_failed_.load() > 0; }

    // For the thread.
    bool fails() noexcept {
        int64_t n = n_left_.load();
        while (n >= 0 && !n_left_.compare_exchange_weak(n, n > 0 ? n - 1 : lasts_ ? 0 : -1)) {}
        n_failed_.fetch_add(n == 0 ? 1 : 0);
        return n == 0;
    }

  private:
    std::atomic<int64_t> n_left_{-1}; // < 0: none fails
    std::atomic<int64_t> n_failed_{0};
    std::atomic<bool>    lasts_{false};
};

thread_local memory * own_memory = nullptr; // null: that of the system
thread_local int      n_spared   = 0;       // > 0: the scripted model's own allocations, which a model would not have

bool allocation_fails() noexcept {
    return own_memory != nullptr && n_spared == 0 && own_memory->fails();
}

} // namespace

#if defined(__GNUC__)
#define DUO_TEST_APART [[gnu::noinline]] // or GCC takes malloc and operator delete for a mistake
#else
#define DUO_TEST_APART
#endif

DUO_TEST_APART void * operator new(std::size_t n) {
    void * p = allocation_fails() ? nullptr : std::malloc(n > 0 ? n : 1);
    if (p == nullptr) {
        throw std::bad_alloc();
    }
    return p;
}
// For temporary buffers of algorithms, which do without.
DUO_TEST_APART void * operator new(std::size_t n, const std::nothrow_t & /*unused*/) noexcept {
    return allocation_fails() ? nullptr : std::malloc(n > 0 ? n : 1);
}
DUO_TEST_APART void operator delete(void * p) noexcept {
    std::free(p);
}
DUO_TEST_APART void operator delete(void * p, std::size_t) noexcept {
    std::free(p);
}

namespace {

// A call of the model counts as one allocation, at its beginning.
class spared_model : public scripted_model {
  public:
    using scripted_model::scripted_model;

    decode_status decode(std::span<const row> rows, const std::atomic<bool> & stop) override {
        const call c(true);
        return scripted_model::decode(rows, stop);
    }
    int32_t candidates(int32_t i, const sampling_params & s, std::span<const token_id> text,
                       std::span<candidate> out) override {
        const call c(true);
        return scripted_model::candidates(i, s, text, out);
    }
    float logprobs(int32_t i, token_id token, std::span<candidate> out) override {
        const call c(true);
        return scripted_model::logprobs(i, token, out);
    }
    std::string piece(token_id token) const override {
        const call c(true);
        return scripted_model::piece(token);
    }
    void use_threads(int32_t n) override {
        const call c(true);
        scripted_model::use_threads(n);
    }
    // libllama needs no memory for these.
    bool rollback(int32_t branch, int32_t pos) override {
        const call c(false);
        return scripted_model::rollback(branch, pos);
    }
    int32_t take_back(int32_t branch, int32_t pos) override {
        const call c(false);
        return scripted_model::take_back(branch, pos);
    }
    void fork(int32_t from, int32_t to, int32_t pos) override {
        const call c(false);
        scripted_model::fork(from, to, pos);
    }

  private:
    struct call {
        explicit call(bool may_fail) {
            if (may_fail && allocation_fails()) {
                throw std::bad_alloc();
            }
            ++n_spared;
        }
        ~call() { --n_spared; }
    };
};

struct small_machine {
    explicit small_machine(const behaviour & b, const behaviour & d, int32_t n_texts)
        : target(b), draft(d), line(&target, &draft,
                                    {.n_texts          = n_texts,
                                     .n_kept_bytes     = -1,
                                     .on_target_thread = [this] { own_memory = &of_target; },
                                     .on_draft_thread  = [this] { own_memory = &of_draft; }}) {}

    std::vector<answer> run(const std::vector<ask> & asks) {
        std::vector<std::shared_ptr<open_text>> texts;
        std::vector<answer>                     got(asks.size());
        for (const ask & q : asks) {
            texts.push_back(line.begin(q.make()));
        }
        for (size_t i = 0; i < asks.size(); ++i) {
            read_some(line, *texts[i], got[i], size_t(-1));
        }
        return got;
    }

    memory       of_target;
    memory       of_draft;
    spared_model target;
    spared_model draft;
    pipeline     line;
};

struct short_text {
    run_mode mode     = run_mode::async;
    int32_t  n_texts  = 1;
    bool     in_draft = false; // the draft's thread has too little memory, or else the target's
    bool     lasts    = false; // until the texts have ended
    bool     is_full  = false; // the cache has room for one text, so the other one is parked
};

// Fails at the first allocation of the thread, then at the second, and so on, until all texts pass whole.
void fail_at_every_place(const short_text & how) {
    behaviour b{.n_batch = 8, .n_branch = 16, .is_target = true};
    b.n_ctx = how.is_full ? 96 : b.n_ctx;
    const behaviour  d{.n_batch = 8, .agree = 0.7};
    std::vector<ask> asks;
    for (int32_t i = 0; i < how.n_texts; ++i) {
        ask q = ask{.prompt = {1, 2, 3, 4, 5, 6, 7, i + 1}, .n_predict = 8, .n_logprobs = 2}.as(how.mode, 3);
        q.prompt.insert(q.prompt.begin(), how.is_full ? 76 : 0, 9);
        q.plan.ngram = {.kind = ngram_kind::mod};
        asks.push_back(q);
    }
    // A sanitizer takes each fifth place, and `make test` each third one of two texts.
    const int64_t step    = check::is_small() ? 5 : how.n_texts > 1 ? check::by_scale(3, 1) : 1;
    int           n_whole = 0;
    int64_t       n       = 0;
    int64_t       n_back  = 0; // texts that were parked and went on
    for (; n_whole < 3; n += step) {
        const std::string note = "allocation " + std::to_string(n) + " of mode " + std::to_string(int(how.mode)) +
                                 (how.in_draft ? ", draft" : ", target") + (how.lasts ? ", lasting" : "");
        small_machine m(b, d, how.n_texts);
        memory &      short_of = how.in_draft ? m.of_draft : m.of_target;
        short_of.fail_at(n, how.lasts);
        const auto got = m.run(asks);
        short_of.relax();
        n_whole = short_of.failed() ? 0 : n_whole + 1;
        for (size_t i = 0; i < asks.size(); ++i) {
            const answer want = reference(b.lang, b.n_ctx, asks[i]);
            if (got[i].finish != finish_reason::error) {
                check_same(got[i], want, note);
                continue;
            }
            CHECK(!how.in_draft, note);
            CHECK(got[i].error.kind == error_kind::does_not_fit, note + ": " + got[i].error.sentence);
            CHECK(is_beginning(got[i].tokens, want.tokens), note);
        }
        CHECK(!m.line.running(), note);
        const auto next = m.run(asks);
        for (size_t i = 0; i < asks.size(); ++i) {
            check_same(next[i], reference(b.lang, b.n_ctx, asks[i]), note + ", the next text");
            CHECK_EQ(next[i].warning, std::string(), note);
        }
        n_back += m.target.n_restored.load();
        REQUIRE(check::n_failed.load() < 10, note);
        REQUIRE(n < 20000, "it passes at some time");
    }
    std::printf("       %s: %lld places\n", how.in_draft ? "draft" : "target",
                static_cast<long long>(n - step * n_whole));
    CHECK(n - step * n_whole > 10, "a text needs memory"); // on a loaded machine a draft does little
    CHECK(!how.is_full || n_back > 0, "one text waits for the other");
}

} // namespace

TEST(memory_fails_at_every_place_of_the_targets_loop) {
    for (const run_mode mode : {run_mode::sync, run_mode::async}) {
        fail_at_every_place({.mode = mode});
    }
    fail_at_every_place({.n_texts = 2});
    fail_at_every_place({.n_texts = 2, .is_full = true});
}

TEST(memory_fails_at_every_place_of_the_drafts_loop) {
    for (const run_mode mode : {run_mode::sync, run_mode::async}) {
        fail_at_every_place({.mode = mode, .in_draft = true});
    }
    fail_at_every_place({.n_texts = 2, .in_draft = true});
}

// The text must end without memory.
TEST(memory_is_gone_from_the_nth_place_on) {
    fail_at_every_place({.lasts = true});
    fail_at_every_place({.in_draft = true, .lasts = true});
    fail_at_every_place({.n_texts = 2, .lasts = true});
}

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
