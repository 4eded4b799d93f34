// A caller's hook is asked about each token once, in order, in every mode; it can end the text, and fail.
#include "pair.h"
#include "scripted_hook.h"

using namespace duo_test;

namespace {

const ask q{.prompt = {1, 2, 3, 4, 5}, .n_predict = 30};

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
