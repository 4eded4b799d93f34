#include "errand_desk.h"

#include <algorithm>
#include <utility>

#include "base/same.h"
#include "model/errand.h"
#include "rings/listen_loop.h"

namespace duo {

namespace {
constexpr size_t  n_score_rows = 64;   // of one pass: each row's logits take memory
constexpr int64_t again_us     = 1000; // between two looks at a full ring

bool within_picture(const std::vector<token_id> & tokens, size_t n) {
    return n > 0 && n < tokens.size() && is_picture(tokens[n - 1]) && is_picture(tokens[n]);
}
} // namespace

finish_reason errand_desk::serve(request & req) noexcept {
    finish_reason why   = finish_reason::error;
    bool          whole = true; // what is known of the cache is right
    drafts_.take_nodes();
    verify_slot & s = choose_slot(req);
    if (drafts_.here()) {
        req.draft_done.store(false, std::memory_order_relaxed);
        send(s, req);
    }
    try {
        carry_out(s, req);
        why = req.cancelled.load(std::memory_order_relaxed) ? finish_reason::cancelled : finish_reason::stop;
    } catch (...) {
        req.error = failure_caught();
        whole     = false;
    }
    if (!whole) {
        cache_.clear(s);
    }
    if (drafts_.here()) {
        await_draft(req);
        if (req.job->draft.n_left_out == 0) { // else it holds what it held
            s.draft.set_read(req.job->draft.tokens);
        }
        req.warning = std::move(req.draft_error);
    }
    return why;
}

// What is looked at or saved is the text that has the longest beginning in common with the request's prompt, or without
// one the text that ended last. What is restored or scored takes the place of the oldest text. A place may be wanted.
verify_slot & errand_desk::choose_slot(const request & req) {
    const errand::kind what = req.job->what;
    if (req.wanted >= 0 && size_t(req.wanted) < cache_.slots().size()) {
        return cache_.slots()[size_t(req.wanted)];
    }
    if (what == errand::kind::look || what == errand::kind::save || what == errand::kind::erase) {
        return req.prompt.empty() ? *last_ : cache_.nearest_slot(req.prompt, req.scales);
    }
    if (what == errand::kind::restore && req.job->target.given.empty()) {
        return *last_;
    }
    verify_slot & s = *cache_.oldest_slot();
    cache_.touch(s);
    last_ = &s;
    return s;
}

void errand_desk::send(const verify_slot & s, const request & req) {
    const verdict_msg v{.what = verdict_msg::kind::errand, .slot = s.index, .req = &req};
    const auto        look = [&] {
        drafts_.take_nodes(); // the draft may wait for room in its ring
        return done_if(wires_.verdicts.try_push(v));
    };
    while (!listen_until(wires_.verify_bell, now_us() + again_us, [] { return false; }, look)) {}
}

// Until the draft has done its part.
void errand_desk::await_draft(const request & req) {
    const auto look = [&] {
        drafts_.take_nodes();
        if (req.cancelled.load(std::memory_order_relaxed)) { // it reads a text that has ended
            drafts_.stop_reading();
        }
        return done_if(req.draft_done.load(std::memory_order_acquire));
    };
    while (!listen_until(wires_.verify_bell, bell::forever, [] { return false; }, look)) {}
}

void errand_desk::carry_out(verify_slot & s, request & req) {
    errand & job = *req.job;
    switch (job.what) {
        case errand::kind::look:
            job.target.tokens = s.cached;
            job.target.held   = all_held(model_);
            break;
        case errand::kind::save:
            // Another text may have taken the place of the one that is meant.
            if (job.n_keep >= 0 && size_t(job.n_keep) < s.cached.size() &&
                !within_picture(s.cached, size_t(job.n_keep)) &&
                size_t(n_same(s.cached, req.prompt)) == std::min(s.cached.size(), req.prompt.size()) &&
                model_.rollback(s.first_branch, job.n_keep)) {
                s.cached.resize(size_t(job.n_keep));
            }
            job.target.tokens = s.cached;
            job.target.scales = s.scales;
            if (!s.cached.empty()) {
                job.target.saved = model_.save(s.first_branch);
            }
            break;
        case errand::kind::restore:
            if (!job.target.given.empty()) {
                cache_.save_to_ram(s);
                cache_.clear(s);
                cache_.make_room(job.target.tokens.size());
                model_.restore(s.first_branch, job.target.given);
                s.cached = job.target.tokens;
                s.scales = job.target.scales;
            }
            break;
        case errand::kind::erase:
            job.target.tokens = s.cached;
            cache_.clear(s);
            break;
        case errand::kind::score:
            score(s, req);
            break;
    }
}

// The last token need not be evaluated: nothing follows it.
void errand_desk::score(verify_slot & s, request & req) {
    errand &     job    = *req.job;
    const auto & tokens = req.prompt;
    const size_t n_rows = std::min(n_score_rows, size_t(model_.facts().n_batch));
    model_.use_threads(0);
    cache_.save_to_ram(s);
    cache_.clear(s);
    cache_.make_room(tokens.size());
    s.scales = req.scales;
    model_.use_scales(s.scales);
    best_.resize(size_t(job.n_top));
    while (s.cached.size() + 1 < tokens.size()) {
        const size_t first = s.cached.size();
        const size_t end   = std::min(first + n_rows, tokens.size() - 1);
        rows_.clear();
        for (size_t pos = first; pos < end; ++pos) {
            rows_.push_back({.token = tokens[pos], .pos = int32_t(pos), .branch = s.first_branch, .output = true});
        }
        if (model_.decode(rows_, req.cancelled) == decode_status::stopped) {
            return;
        }
        for (size_t pos = first; pos < end; ++pos) {
            s.cached.push_back(tokens[pos]);
            job.logp.push_back(model_.logprobs(int32_t(pos - first), tokens[pos + 1], best_));
            job.top.insert(job.top.end(), best_.begin(), best_.end());
        }
    }
    cache_.drop_unheld(s);
}

} // namespace duo
