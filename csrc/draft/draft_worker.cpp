#include "draft_worker.h"

#include "base/clock.h"
#include "base/error.h"
#include "model/errand.h"
#include "rings/listen_loop.h"

namespace duo {

draft_worker::draft_worker(token_model & model, wires & w, int32_t n_texts)
    : model_(model), wires_(w), texts_(model, w, n_texts), late_(model, w), evaluator_(model), sender_(model, w, ids_),
      choice_(model, texts_, sender_), board_(size_t(n_texts)) {
    usage_.cells.resize(size_t(n_texts));
}

void draft_worker::run() noexcept {
    bool       last   = false;
    const auto closed = [&] { return last = wires_.verdicts.closed(); };
    const auto look   = [&] {
        const bool any = take_verdicts();
        if (last) {
            return found::done;
        }
        const bool works = texts_.any_wants_step();
        if (works) {
            work();
        }
        if (any || works) {
            tell_usage();
        }
        return works ? found::work : found::nothing;
    };
    listen_until(wires_.draft_bell, bell::forever, closed, look);
    for (draft_text & t : texts_) {
        t.end();
    }
}

// A step. If it fails, the texts that had a part in it go on without the draft. Where the choice of the parts failed,
// these are all that wanted one.
void draft_worker::work() noexcept {
    try {
        do_step();
    } catch (...) {
        const failure why = failure_caught();
        for (const draft_step::part & p : step_.parts()) {
            sender_.fail(*p.text, why.sentence.c_str());
        }
        for (draft_text & t : texts_) {
            if (step_.parts().empty() && texts_.wants_step(t)) {
                sender_.fail(t, why.sentence.c_str());
            }
        }
    }
}

void draft_worker::do_step() {
    choice_.choose(step_);
    if (step_.parts().empty()) {
        return;
    }
    step_.t0    = now_us();
    step_.busy0 = wires_.verify_busy.at(step_.t0);
    wires_.draft_busy.begin(step_.t0);
    bool done = false;
    try {
        done = evaluator_.evaluate(step_, late_.flag_of(step_));
    } catch (...) {
        wires_.draft_busy.end(now_us());
        throw;
    }
    if (done) {
        step_.t_rows = now_us();
        // A step on a part of the cores counts as beside the target, whatever the target did.
        const bool split = step_.parts().front().text->orders().n_threads > 0;
        step_.beside_us  = split ? step_.t_rows - step_.t0 : wires_.verify_busy.at(step_.t_rows) - step_.busy0;
        sender_.send(step_);
    }
    for (const draft_step::part & p : step_.parts()) {
        if (p.text->active() && p.n_rows == 0 && p.nodes.empty()) {
            sender_.pause(*p.text); // the cache has no branch for any of its nodes
        }
    }
    wires_.nodes.wake(); // once for all of a step
    const int64_t t1 = now_us();
    wires_.draft_busy.end(t1);
    if (!step_.rows.empty()) {
        count(step_, t1, wires_.verify_busy.at(t1) - step_.busy0);
    }
}

// Figures of a step that ended at t1. hidden_us: the part of it in which the target worked too.
void draft_worker::count(const draft_step & step, int64_t t1, int64_t hidden_us) {
    const auto n      = int64_t(step.parts().size()); // each text has its share of the step's time
    int32_t    n_made = 0;
    for (const draft_step::part & p : step.parts()) {
        n_made += p.n_made;
        if (p.text->active()) {
            p.text->req().draft->count(1, p.n_made, (t1 - step.t0) / n, hidden_us / n);
        }
    }
    if (wires_.tracing) {
        wires_.draft_trace.try_push({.what      = step.typical ? trace_event::kind::draft : trace_event::kind::prompt,
                                     .slot      = step.parts().front().text->slot(),
                                     .n_rows    = int32_t(step.rows.size()),
                                     .n_drafted = n_made,
                                     .depth     = step.depth,
                                     .t0_us     = step.t0,
                                     .t1_us     = t1});
    }
}

void draft_worker::tell_usage() noexcept {
    texts_.tell(usage_);
    board_.write(usage_);
}

// False: there were none.
bool draft_worker::take_verdicts() noexcept {
    bool        any = false;
    verdict_msg v;
    while (wires_.verdicts.try_pop(v)) {
        any               = true;
        draft_text * text = texts_.find(v.slot);
        if (text == nullptr) {
            continue;
        }
        if (v.what != verdict_msg::kind::features) {
            late_.lower(v.slot);
        }
        try {
            take(*text, v);
        } catch (...) {
            sender_.fail(*text, failure_caught().sentence.c_str());
        }
    }
    return any;
}

void draft_worker::take(draft_text & text, const verdict_msg & v) {
    switch (v.what) {
        case verdict_msg::kind::begin:
            text.end();
            name(text.begin(*v.req, ids_));
            take_orders(text, v);
            break;
        case verdict_msg::kind::orders:
            if (text.active()) {
                take_orders(text, v);
            }
            break;
        case verdict_msg::kind::verdict:
            if (text.active()) {
                name(text.apply(v, ids_));
                take_orders(text, v);
            }
            break;
        case verdict_msg::kind::end:
            text.end();
            text.cache().drop_tree();
            break;
        case verdict_msg::kind::errand:
            text.end();
            do_errand(text, *v.req);
            break;
        case verdict_msg::kind::features:
            take_features(text, v);
            break;
    }
}

void draft_worker::name(const std::optional<node_msg> & root) {
    if (root) {
        wires_.nodes.push(*root);
    }
}

void draft_worker::take_orders(draft_text & text, const verdict_msg & v) {
    text.take_orders(v);
    model_.use_threads(text.orders().n_threads);
}

void draft_worker::take_features(draft_text & text, const verdict_msg & v) {
    int32_t pos = v.pos;
    wires_.features->take(size_t(v.n_rows),
                          [&](token_id token, std::span<const float> row) { text.take_features(pos++, token, row); });
}

// After draft_done the caller may free the request.
void draft_worker::do_errand(draft_text & text, const request & req) noexcept {
    try {
        do_errand(text, *req.job);
    } catch (...) {
        req.draft_error = failure_caught().sentence; // moved: needs no memory
        text.cache().clear();
        req.job->draft = {};
    }
    tell_usage();
    req.draft_done.store(true, std::memory_order_release);
    wires_.nodes.push({.what = node_msg::kind::done, .slot = text.slot()});
}

void draft_worker::do_errand(draft_text & text, errand & job) {
    cache_image & image = job.draft;
    cached_text & cache = text.cache();
    switch (job.what) {
        case errand::kind::save:
            if (cache.head() != nullptr) {
                read_to_end(text);
            }
            cache.trunk().keep_as_base(job.n_keep < 0 ? job.n_keep : cache.pictures().whole(job.n_keep));
            if (cache.trunk().n_text() > 0 && cache.trunk().n_left_out() == 0) {
                image.saved = model_.save(cache.trunk().branch());
            }
            break;
        case errand::kind::restore:
            if (!image.given.empty()) {
                cache.clear();
                if (texts_.n_free() < int32_t(image.tokens.size())) {
                    texts_.make_room(text);
                }
                model_.restore(cache.trunk().branch(), image.given);
                // Of the last tokens a draft with another vocabulary may have had no room.
                cache.adopt(std::span(image.tokens)
                                .first(std::min(image.tokens.size(), size_t(model_.n_held(cache.trunk().branch())))));
            }
            break;
        case errand::kind::erase:
            cache.clear();
            break;
        case errand::kind::look:
            image.held = all_held(model_);
            break;
        case errand::kind::score:
            break;
    }
    image.n_left_out = cache.trunk().n_left_out();
    const bool whole = job.what != errand::kind::save || image.n_left_out == 0;
    image.tokens     = whole ? cache.cached_tokens() : std::vector<token_id>();
}

// A text that is saved: its head reads all that it has states for, because these are not saved.
void draft_worker::read_to_end(draft_text & text) {
    cached_text & cache = text.cache();
    cache.drop_tree();
    cache.take_known_tokens();
    int32_t n_free = texts_.n_free();
    while (cache.n_readable() > 0 && cache.n_readable() <= n_free &&
           cache.tokens().size() <= size_t(model_.facts().n_ctx)) {
        n_free -= evaluator_.read(text);
    }
}

} // namespace duo
