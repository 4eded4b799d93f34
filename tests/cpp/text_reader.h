// A reader of one text among several, and what all of them count.
#pragma once

#include "asks.h"
#include "scripted_hook.h"

namespace duo_test {

struct total {
    int n_texts = 0, n_cancelled = 0, n_accepted = 0, n_rejected = 0, n_full = 0, n_parked = 0;
    int n_errors = 0, n_hooks_failed = 0, n_hooks_stopped = 0;
};

// One reader: its text is begun, read, perhaps cancelled.
struct reader {
    ask                            q;
    std::string                    note;
    size_t                         n_read = size_t(-1); // tokens, then it is cancelled
    std::shared_ptr<scripted_hook> hook;                // null: none
    answer                         a;
    std::shared_ptr<open_text>     text;
    bool                           saw_parked = false; // this text or another one, while it was read

    void run(pipeline & line, bool slow, dice d) {
        auto req  = q.make();
        req->hook = hook;
        text      = line.begin(std::move(req));
        while (a.tokens.size() < n_read && read_some(line, *text, a, a.tokens.size() + 1)) {
            saw_parked = saw_parked || line.usage().target.n_parked > 0;
            if (slow) {
                loiter(d.next(), 100);
            }
        }
        if (a.finish == finish_reason::none) {
            line.cancel(*text);
        }
    }

    // What the text is alone; a hook ends it before its time.
    answer wanted(const language & lang, int32_t n_ctx) const {
        answer       want = reference(lang, n_ctx, q);
        const size_t cut  = hook == nullptr ? 0 : std::max(hook->stop_at, hook->throw_at);
        if (cut == 0 || q.prompt.size() + want.tokens.size() <= cut) {
            return want;
        }
        want.tokens.resize(cut - q.prompt.size());
        want.finish = hook->throw_at > 0 ? finish_reason::error : finish_reason::stop;
        std::string bytes;
        for (const token_id t : want.tokens) {
            bytes += language::piece(t);
        }
        want.text = utf8_valid(bytes);
        return want;
    }

    // sound: no model fails.
    void check(const language & lang, int32_t n_ctx, bool sound, total & sum) const {
        ++sum.n_texts;
        sum.n_parked += saw_parked ? 1 : 0;
        const answer want = wanted(lang, n_ctx);
        CHECK(is_beginning(a.tokens, want.tokens), note);
        if (a.finish == finish_reason::none) {
            ++sum.n_cancelled;
            return;
        }
        if (a.finish == finish_reason::error) {
            CHECK(a.error.sentence.find("fails") != std::string::npos, note + a.error.sentence);
            const bool by_hook = a.error.sentence == "the hook fails";
            CHECK(!by_hook || (want.finish == finish_reason::error && a.tokens == want.tokens), note);
            ++(by_hook ? sum.n_hooks_failed : sum.n_errors);
            return;
        }
        check_same(a, want, note);
        CHECK(!sound || a.warning.empty(), note + a.warning);
        sum.n_full += int32_t(q.prompt.size() + a.tokens.size()) == n_ctx ? 1 : 0;
        if (hook != nullptr && hook->stop_at == q.prompt.size() + a.tokens.size()) {
            ++sum.n_hooks_stopped; // in a pass without a token
            return;
        }
        check_stats(a, q, note);
        sum.n_accepted += a.stats.n_accepted;
        sum.n_rejected += a.stats.n_drafted - a.stats.n_accepted;
    }
};

} // namespace duo_test
