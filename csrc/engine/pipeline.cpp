#include "pipeline.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "model/errand.h"

namespace duo {

namespace {
// Rows for two passes over a prompt. If the draft is further behind, the newest ones are not sent.
constexpr size_t n_feature_rows = 1024;
} // namespace

pipeline::pipeline(token_model * target, token_model * draft, const options & opt)
    : text_model_(target != nullptr ? *target : *draft),
      n_ctx_(target != nullptr ? target->facts().n_ctx : opt.n_ctx_remote),
      shared_wires_(std::make_shared<wires>(opt.n_texts, opt.on_host)), wires_(*shared_wires_),
      reader_(text_model_, wires_, opt.n_texts) {
    using place    = drafts::place;
    wires_.tracing = opt.tracing;
    wires_.lookup  = opt.lookup;
    if (target != nullptr && draft != nullptr && draft->facts().n_inputs > 0) {
        wires_.features = std::make_unique<feature_ring>(draft->facts().n_inputs, n_feature_rows);
    }
    if (target != nullptr) {
        pair_prior prior = opt.prior;
        prior.n_levels   = draft != nullptr ? draft->facts().n_levels : 1;
        prior.windows    = draft != nullptr && draft->facts().n_inputs == 0 && draft->facts().undo == undo_kind::cells;
        verify_worker_.emplace(*target, wires_,
                               draft != nullptr   ? place::here
                               : opt.remote_draft ? place::elsewhere
                                                  : place::none,
                               prior, opt.n_texts, opt.n_kept_bytes);
    }
    if (draft != nullptr) {
        draft_worker_.emplace(*draft, wires_, opt.n_texts);
    }
    start_threads(opt); // last: nothing may throw while a thread runs that nobody joins
}

// Throws std::system_error if a thread could not be started; none runs then.
void pipeline::start_threads(const options & opt) {
    try {
        if (verify_worker_) {
            verify_thread_ = std::thread([this, f = opt.on_target_thread] {
                if (f) {
                    f();
                }
                verify_worker_->run();
            });
        }
        if (draft_worker_) {
            draft_thread_ = std::thread([this, f = opt.on_draft_thread] {
                if (f) {
                    f();
                }
                draft_worker_->run();
            });
        }
    } catch (...) {
        close();
        throw;
    }
}

pipeline::~pipeline() {
    close();
}

// Throws duo::error.
void pipeline::check_prompt(const request & req) const {
    if (req.prompt.empty()) {
        throw error(error_kind::bad_value, "the prompt is empty; give at least one token");
    }
    // A resumed text may lack only its end.
    if (int32_t(req.prompt.size()) >= n_ctx_ + (req.n_generated > 0 ? 1 : 0)) {
        throw error(error_kind::context_full, "the prompt has " + std::to_string(req.prompt.size()) +
                                                  " tokens and the context holds " + std::to_string(n_ctx_) +
                                                  " with the answer; shorten it or raise -c/--ctx-size" +
                                                  (verify_worker_ ? "" : " of the verify host"));
    }
    const bool looks = req.job != nullptr && req.job->what != errand::kind::score; // at what is cached
    if (is_picture(req.prompt.back()) && !looks) {
        throw error(error_kind::bad_value, "the prompt ends with a picture; put some text behind it");
    }
    if (!req.pictures.empty() && !verify_worker_) {
        throw error(error_kind::bad_value, "the target is elsewhere and cannot be shown pictures; run duo serve there");
    }
    for (size_t i = 0; i < req.prompt.size(); ++i) {
        const token_id t    = req.prompt[i];
        const bool     seen = is_picture(t) && (looks || req.pictures.at(int32_t(i)) != nullptr);
        if (!seen && (t < 0 || t >= text_model_.facts().n_vocab)) {
            throw error(error_kind::bad_value, "token id " + std::to_string(t) + " is outside the vocabulary (0 to " +
                                                   std::to_string(text_model_.facts().n_vocab - 1) + ")");
        }
    }
}

std::shared_ptr<open_text> pipeline::begin(std::unique_ptr<request> req, int32_t slot) {
    if (req->job != nullptr && !verify_worker_) {
        throw error(error_kind::bad_value, "the target is elsewhere, and so is its cache");
    }
    if (req->job == nullptr || !req->prompt.empty()) {
        check_prompt(*req);
    }
    req->set_grammar_start();
    if (req->filtered) {
        req->filtered->n_prompt = req->sampling.n_prompt;
    }
    std::shared_ptr<open_text> before; // freed after the lock: a hook in Python is freed under the GIL
    const std::lock_guard      locked(mutex_);
    if (req->id == no_node) { // on a host it is the client's id
        req->id = request_node(++n_requests_);
    }
    before = std::exchange(last_, reader_.begin(std::move(req), slot));
    return last_;
}

void pipeline::with_plans(const std::function<void(planner &)> & use) {
    const std::lock_guard locked(mutex_); // begin() takes it, too
    if (running()) {
        throw error(error_kind::busy, "a text is being written; ask for the measurements after it has ended");
    }
    use(verify_worker_ ? verify_worker_->plans() : no_plans_);
}

std::shared_ptr<open_text> pipeline::current() const {
    const std::lock_guard locked(mutex_);
    return last_;
}

engine_usage pipeline::usage() const {
    return {.target    = verify_worker_ ? verify_worker_->usage() : worker_usage{},
            .draft     = draft_worker_ ? draft_worker_->usage() : worker_usage{},
            .n_threads = int32_t(verify_worker_.has_value()) + int32_t(draft_worker_.has_value()),
            .n_open    = int32_t(reader_.n_open()),
            .n_queued  = int32_t(reader_.n_queued()),
            .n_unfreed = int32_t(reader_.n_unfreed()),
            .passes    = verify_worker_ ? verify_worker_->passes() : pass_counts{}};
}

bool pipeline::next(open_text & text, text_chunk & out, int64_t deadline_us) {
    return reader_.next(text, out, deadline_us);
}

void pipeline::cancel(open_text & text) noexcept {
    reader_.cancel(text);
    for (text_chunk dropped; !reader_.ended(text);) {
        if (!reader_.next(text, dropped, bell::forever)) {
            return; // closed
        }
    }
}

void pipeline::cancel_all() noexcept {
    reader_.cancel_all();
    reader_.wait_until_idle();
}

void pipeline::take_trace(std::vector<trace_event> & target, std::vector<trace_event> & draft) {
    wires_.verify_trace.take_all(target);
    wires_.draft_trace.take_all(draft);
}

void pipeline::close() noexcept {
    {
        const std::lock_guard locked(mutex_);
        if (closed_) {
            return;
        }
        closed_ = true;
    }
    reader_.close();
    reader_.wait_until_idle();
    wires_.requests.close();
    if (verify_thread_.joinable()) {
        verify_thread_.join(); // closes the verdicts on its way out
    } else {
        wires_.verdicts.close();
        wires_.chunks.close();
    }
    {
        const std::lock_guard locked(wires_.link_mutex);
        for (const auto & r : wires_.begins) {
            r->cancelled.store(true, std::memory_order_relaxed);
        }
    }
    wires_.nodes.close();
    if (draft_thread_.joinable()) {
        draft_thread_.join();
    }
    const std::lock_guard locked(wires_.link_mutex);
    wires_.requests_freed = true;
}

} // namespace duo
