// A caller's hook is asked about each token once, in order, in every mode; it can end the text, and fail.
#include <atomic>
#include <functional>
#include <thread>
#include <utility>

#include "pair.h"
#include "scripted_hook.h"

using namespace duo_test;

namespace {

const ask q{.prompt = {1, 2, 3, 4, 5}, .n_predict = 30};

// Says when it is freed.
class mortal_hook : public token_hook {
  public:
    explicit mortal_hook(std::function<void()> on_end) : on_end_(std::move(on_end)) {}
    ~mortal_hook() override { on_end_(); }

    bool on_row(std::span<const token_id> /*text*/, std::span<float> /*logits*/) override { return true; }

  private:
    const std::function<void()> on_end_;
};

} // namespace

TEST(hook_is_asked_once_for_each_token) {
    for (const run_mode mode : {run_mode::plain, run_mode::sync, run_mode::async}) {
        for (const size_t n : {0, 5, 6, 17}) {
            for (const bool fails : {false, true}) {
                pair         p(behaviour{.pass_us = 50}, behaviour{.n_batch = 3, .agree = 0.7});
                const answer want                        = reference(p.lang, p.n_ctx, q);
                const auto   hook                        = std::make_shared<scripted_hook>();
                (fails ? hook->throw_at : hook->stop_at) = n;
                auto req                                 = q.as(mode, 4).make();
                req->hook                                = hook;
                p.line.begin(std::move(req));
                const answer a    = read_all(p.line);
                const size_t most = n == 0 ? want.tokens.size() : std::min(want.tokens.size(), n - q.prompt.size());
                CHECK(std::equal(a.tokens.begin(), a.tokens.end(), want.tokens.begin(),
                                 want.tokens.begin() + ptrdiff_t(most)));
                const bool cut = most < want.tokens.size();
                CHECK(a.finish == (!cut ? want.finish : fails ? finish_reason::error : finish_reason::stop));
                CHECK_EQ(a.error.sentence, std::string(cut && fails ? "the hook fails" : ""));
                auto text = q.prompt;
                CHECK_EQ(hook->asked.size(), most + (cut ? 1 : 0));
                for (size_t i = 0; i < hook->asked.size(); ++i) {
                    CHECK(hook->asked[i] == text);
                    text.push_back(i < a.tokens.size() ? a.tokens[i] : no_token);
                }
                p.run(q.as(mode, 4), "the next text has no hook");
            }
        }
    }
}

// One in Python is freed under the GIL, which another reader may hold while it waits for the pipeline's locks.
TEST(hook_is_freed_without_a_lock) {
    pair              p(behaviour{.pass_us = 50}, behaviour{});
    std::atomic<bool> got_lock{false};
    std::atomic<bool> in_time{false};
    std::thread       other;
    const auto        look = [&] {
        other = std::thread([&] {
            (void)p.line.n_queued(); // waits for the lock
            got_lock.store(true);
        });
        for (const int64_t t = now_us(); !got_lock.load() && now_us() < t + 10000000;) {
            std::this_thread::yield();
        }
        in_time.store(got_lock.load());
    };
    auto req  = q.as(run_mode::plain, 4).make();
    req->hook = std::make_shared<mortal_hook>(look);
    p.line.begin(std::move(req)); // nobody keeps this text
    p.line.begin(q.as(run_mode::plain, 4).make());
    read_all(p.line);
    p.run(q.as(run_mode::plain, 4), "ended texts are freed when the next one begins");
    CHECK(in_time.load());
    if (other.joinable()) {
        other.join();
    }
}
