#include "draft_worker.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "model/errand.h"
#include "rings/listen_loop.h"

namespace duo {

draft_worker::draft_worker(token_model & model, wires & w, int32_t n_texts, bool free_core)
    : model_(model), wires_(w), pool_(model), wait_(free_core), board_(size_t(n_texts)) {
    texts_.reserve(size_t(n_texts));
    for (int32_t slot = 0; slot < n_texts; ++slot) {
        texts_.emplace_back(model, pool_, slot);
    }
    usage_.cells.reserve(texts_.size());
}

void draft_worker::run() noexcept {
    bool       last   = false;
    const auto closed = [&] { return last = wires_.verdicts.closed(); };
    const auto look   = [&] {
        const bool any = take_verdicts();
        if (last) {
            return found::done;
        }
        if (!any_wants_step()) {
            if (any) {
                tell_usage();
            }
            return found::nothing;
        }
        n_parts_ = 0;
        try {
            step();
        } catch (...) {
            fail_step(failure_caught().sentence.c_str());
        }
        tell_usage();
        return found::work;
    };
    listen_until(wires_.draft_bell, bell::forever, closed, look, wait_);
    for (draft_text & t : texts_) {
        t.end();
    }
}

bool draft_worker::wants_step(const draft_text & t) const {
    return t.wants_step() && !wires_.held[size_t(t.slot())].load(std::memory_order_relaxed);
}

bool draft_worker::any_wants_step() const {
    return std::any_of(texts_.begin(), texts_.end(), [this](const draft_text & t) { return wants_step(t); });
}

void draft_worker::tell_usage() noexcept {
    usage_ = {.cells = std::move(usage_.cells), .n_branches = pool_.n_taken()};
    usage_.cells.clear();
    for (const draft_text & t : texts_) {
        usage_.cells.push_back(t.n_cached());
        usage_.n_active += t.active() ? 1 : 0;
    }
    board_.write(usage_);
}

// False: there were none.
bool draft_worker::take_verdicts() noexcept {
    bool        any = false;
    verdict_msg v;
    while (wires_.verdicts.try_pop(v)) {
        any = true;
        if (v.slot < 0 || size_t(v.slot) >= texts_.size()) {
            continue; // the other side has more slots
        }
        draft_text & text = texts_[size_t(v.slot)];
        if (v.what != verdict_msg::kind::features) {
            wires_.useless[size_t(v.slot)].store(false, std::memory_order_relaxed);
        }
        try {
            take(text, v);
        } catch (...) {
            fail(text, failure_caught().sentence.c_str());
        }
    }
    return any;
}

void draft_worker::take_features(const verdict_msg & v) {
    draft_text & text = texts_[size_t(v.slot)];
    int32_t      pos  = v.pos;
    wires_.features->take(size_t(v.n_rows),
                          [&](token_id token, std::span<const float> row) { text.take_features(pos++, token, row); });
}

void draft_worker::take(draft_text & text, const verdict_msg & v) {
    node_msg named;
    switch (v.what) {
        case verdict_msg::kind::begin:
            text.end();
            if (text.begin(*v.req, ids_, named)) {
                wires_.nodes.push(named);
            }
            take_orders(text, v);
            break;
        case verdict_msg::kind::orders:
            if (text.active()) {
                take_orders(text, v);
            }
            break;
        case verdict_msg::kind::verdict:
            if (text.active()) {
                if (text.apply(v, ids_, named)) {
                    wires_.nodes.push(named);
                }
                take_orders(text, v);
            }
            break;
        case verdict_msg::kind::end:
            text.end();
            text.drop_tree();
            break;
        case verdict_msg::kind::errand:
            text.end();
            do_errand(text, *v.req);
            break;
        case verdict_msg::kind::features:
            take_features(v);
            break;
    }
}

// After draft_done the caller may free the request.
void draft_worker::do_errand(draft_text & text, const request & req) noexcept {
    try {
        do_errand(text, *req.job);
    } catch (...) {
        req.draft_error = failure_caught().sentence; // moved: needs no memory
        text.clear_cache();
        req.job->draft = {};
    }
    tell_usage();
    req.draft_done.store(true, std::memory_order_release);
    wires_.nodes.push({.what = node_msg::kind::done, .slot = text.slot()});
}

void draft_worker::do_errand(draft_text & text, errand & job) {
    cache_image & image = job.draft;
    switch (job.what) {
        case errand::kind::save:
            if (text.head() != nullptr) {
                read_to_end(text);
            }
            text.trunk().settle(job.n_keep);
            if (text.trunk().n_text() > 0 && text.n_left_out() == 0) {
                image.saved = model_.save(text.trunk().branch());
            }
            break;
        case errand::kind::restore:
            if (!image.given.empty()) {
                text.clear_cache();
                int32_t n_free = model_.n_cells();
                for (const draft_text & t : texts_) {
                    n_free -= t.n_cached();
                }
                if (n_free < int32_t(image.tokens.size())) {
                    make_room(text, n_free);
                }
                model_.restore(text.trunk().branch(), image.given);
                text.adopt(image.tokens);
            }
            break;
        case errand::kind::look:
            image.held = all_held(model_);
            break;
        case errand::kind::score:
            break;
    }
    image.n_left_out = text.n_left_out();
    image.tokens     = job.what == errand::kind::save && image.n_left_out > 0 ? std::vector<token_id>() : text.cached();
}

// A text that is saved: its head reads all that it has states for, because these are not saved.
void draft_worker::read_to_end(draft_text & text) {
    text.drop_tree();
    text.take_known_tokens();
    int32_t n_free = model_.n_cells();
    for (const draft_text & t : texts_) {
        n_free -= t.n_cached();
    }
    n_parts_ = 1;
    parts_.resize(std::max<size_t>(1, parts_.size()));
    part & p = parts_.front();
    p.text   = &text;
    p.nodes.assign(1, 0);
    p.branches.clear();
    while (text.n_readable() > 0 && text.n_readable() <= n_free && text.tokens().size() <= size_t(model_.n_ctx())) {
        rows_.clear();
        set_rows_of_text(p, size_t(model_.n_batch()));
        rows_.back().output   = false; // nothing is asked of them
        rows_.back().n_levels = 1;
        set_states();
        model_.decode(rows_, never_stop);
        text.on_true_rows(int32_t(p.n_rows));
        n_free -= int32_t(p.n_rows);
    }
}

void draft_worker::take_orders(draft_text & text, const verdict_msg & v) {
    text.take_orders(v);
    model_.use_threads(text.wanted().n_threads);
}

void draft_worker::pause(draft_text & text) {
    text.pause();
    wires_.nodes.push({.what = node_msg::kind::pause, .slot = text.slot(), .parent = text.tree().root().id});
}

// A step failed: the texts that had a part in it go on without the draft. Where the choice of the parts failed, these
// are all that wanted one.
void draft_worker::fail_step(const char * why) noexcept {
    for (size_t i = 0; i < n_parts_; ++i) {
        fail(*parts_[i].text, why);
    }
    for (draft_text & t : texts_) {
        if (n_parts_ == 0 && wants_step(t)) {
            fail(t, why);
        }
    }
}

void draft_worker::fail(draft_text & text, const char * why) noexcept {
    if (!text.active()) {
        return;
    }
    const request & req     = text.req();
    const bool      cleared = text.clear_cache();
    try {
        req.draft_error = why;
        req.draft_error += cleared ? "" : "; its cache could not be cleared";
    } catch (...) {
        // there is no memory for the reason; the failure is reported without it
    }
    text.pause();
    wires_.nodes.push({.what = node_msg::kind::failed, .slot = text.slot(), .id = req.id});
    text.end();
}

} // namespace duo
