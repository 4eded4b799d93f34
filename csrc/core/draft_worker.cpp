#include "draft_worker.h"

#include <exception>

#include "errand.h"
#include "listen_loop.h"

namespace duo {

void draft_worker::run() noexcept {
    bool       last   = false;
    const auto closed = [&] { return last = wires_.verdicts.closed(); };
    const auto look   = [&] {
        try {
            take_verdicts();
            if (last) {
                return found::done;
            }
            if (!text_.wants_step()) {
                return found::nothing;
            }
            step();
        } catch (const std::exception & e) {
            fail(e.what());
        } catch (...) {
            fail("the draft model failed for an unknown reason");
        }
        return found::work;
    };
    listen_until(wires_.draft_bell, bell::forever, closed, look);
    text_.end();
}

void draft_worker::take_verdicts() {
    verdict_msg v;
    node_msg    named;
    while (wires_.verdicts.try_pop(v)) {
        const bool ours = text_.active() && v.slot == text_.req().slot;
        switch (v.what) {
            case verdict_msg::kind::begin:
                text_.end();
                if (text_.begin(*v.req, ids_, named)) {
                    wires_.nodes.push(named);
                }
                take_orders(v);
                break;
            case verdict_msg::kind::orders:
                if (ours) {
                    take_orders(v);
                }
                break;
            case verdict_msg::kind::verdict:
                if (ours) {
                    if (text_.apply(v, ids_, named)) {
                        wires_.nodes.push(named);
                    }
                    take_orders(v);
                }
                break;
            case verdict_msg::kind::end:
                text_.end();
                break;
            case verdict_msg::kind::errand:
                text_.end();
                do_errand(*v.req);
                break;
        }
    }
}

void draft_worker::do_errand(const request & req) noexcept {
    const int32_t slot  = req.slot; // the caller may free the request as soon as draft_done is set
    cache_image & image = req.job->draft;
    try {
        do_errand(*req.job);
    } catch (const std::exception & e) {
        req.draft_error = e.what();
        text_.clear_cache();
        image = {};
    } catch (...) {
        req.draft_error = "the draft failed for an unknown reason";
        text_.clear_cache();
        image = {};
    }
    req.draft_done.store(true, std::memory_order_release);
    wires_.nodes.push({.what = node_msg::kind::done, .slot = slot});
}

void draft_worker::do_errand(errand & job) {
    cache_image & image = job.draft;
    switch (job.what) {
        case errand::kind::save:
            text_.trunk().settle(job.n_keep);
            if (text_.trunk().n_text() > 0) {
                image.saved = model_.save();
            }
            break;
        case errand::kind::restore:
            if (!image.given.empty()) {
                text_.clear_cache();
                if (text_.trunk().branch() != 0) { // the one that settle() has left
                    throw error(error_kind::busy, "the draft's cache is in use; end the other text first");
                }
                model_.restore(image.given);
                text_.adopt(image.tokens);
            }
            break;
        case errand::kind::look:
        case errand::kind::score:
            break;
    }
    image.tokens = text_.cached();
}

void draft_worker::take_orders(const verdict_msg & v) {
    text_.take_orders(v);
    model_.use_threads(text_.wanted().n_threads);
}

void draft_worker::pause() {
    text_.pause();
    wires_.nodes.push({.what = node_msg::kind::pause, .slot = text_.req().slot, .parent = text_.tree().root().id});
}

void draft_worker::fail(const std::string & why) noexcept {
    if (!text_.active()) {
        return;
    }
    const request & req = text_.req();
    try {
        req.draft_error = why;
        if (!text_.clear_cache()) {
            req.draft_error += "; its cache could not be cleared";
        }
    } catch (...) {
        // there is no memory for the reason; the failure is reported without it
    }
    text_.pause();
    wires_.nodes.push({.what = node_msg::kind::failed, .slot = req.slot, .id = req.id});
    text_.end();
}

} // namespace duo
