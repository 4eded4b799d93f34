#include "engine.h"

#include <exception>
#include <system_error>

#include "base/error.h"
#include "cpu_mask.h"
#include "llama/lone_head.h"
#include "llama/lora.h"
#include "llama/pair_check.h"
#include "llama/pair_projectors.h"
#include "llama/shared_rpc.h"
#include "llama/stock_kernels.h"
#include "llama/weights_loader.h"

namespace duo {

engine::engine(const engine_options & opt) {
    check_cpus(opt.target);
    check_cpus(opt.draft);
    prepare_stock_kernels(opt.target);
    prepare_shared_rpc(opt.target, opt.draft);
    if (opt.target.path.empty() && !opt.draft.path.empty()) {
        refuse_lone_head(opt.draft.path);
    }
    const auto head    = opt.draft.path.empty() ? std::nullopt : read_head_file(opt.draft.path, opt.draft.mtp);
    const bool is_mtp  = head && head->kind == head_kind::mtp;
    const bool has_own = is_mtp && opt.draft.path == opt.target.path; // the target's own layers are the draft
    if (head) {
        if (const std::string why = head_mismatch(opt.draft.path, *head, opt.target.path); !why.empty()) {
            throw error(error_kind::bad_value, why);
        }
    }
    if (!opt.target.path.empty()) {
        model_options t  = opt.target;
        t.guesses        = !opt.draft.path.empty() || opt.remote_draft;
        t.feature_layers = head ? head->layers : t.feature_layers;
        t.mtp            = is_mtp;
        t.load_mtp       = has_own;
        auto weights     = load_weights(t, false);
        auto eyes        = load_projector(opt.projector, *weights);
        loaded_.target   = std::make_shared<llama_token_model>(std::move(weights), nullptr, std::move(eyes));
        scales_.begin(loaded_scales(opt.target));
    }
    if (opt.target.vocab_only) {
        target_view_ = loaded_.target;
        return;
    }
    if (!opt.draft.path.empty()) {
        model_options d = opt.draft;
        d.n_ctx_most    = loaded_.target ? loaded_.target->facts().n_ctx : opt.n_ctx_remote;
        if (head && d.n_ctx == 0) {
            d.n_ctx = loaded_.target->facts().n_ctx; // its own limit says how it was trained
        }
        const model_weights * of_target = loaded_.target ? &loaded_.target->weights() : nullptr;
        auto                  weights   = has_own ? mtp_weights(d, *of_target) : load_weights(d, true, of_target);
        if (loaded_.target) {
            weights = join_vocabularies(std::move(weights));
        }
        auto eyes = load_draft_projector(opt.draft_projector, *weights, loaded_.target.get(), loaded_.words != nullptr);
        loaded_.draft = std::make_shared<llama_token_model>(std::move(weights), loaded_.target.get(), std::move(eyes));
        if (loaded_.words) {
            loaded_.translated_draft =
                std::make_unique<translated_model>(*loaded_.draft, loaded_.target->vocabulary, *loaded_.words);
        } else if (loaded_.target) {
            loaded_.draft->sampler()->limit_vocab(loaded_.target->facts().n_vocab);
        }
    }
    if (!opt.lookup_static.empty() || !opt.lookup_dynamic.empty()) {
        if (!loaded_.target) {
            throw error(error_kind::bad_value,
                        "--lookup-cache-static and --lookup-cache-dynamic need the target in this "
                        "process, and it is in another one; leave them out");
        }
        lookup_ =
            std::make_shared<lookup_cache>(opt.lookup_static, opt.lookup_dynamic, loaded_.target->facts().n_vocab);
    }
    target_view_    = loaded_.target;
    draft_view_     = loaded_.draft;
    token_model * t = loaded_.target.get();
    token_model * d =
        loaded_.translated_draft ? static_cast<token_model *>(loaded_.translated_draft.get()) : loaded_.draft.get();
    const auto wrapped = [&opt](token_model * inner, std::unique_ptr<token_model> & outer) {
        outer = inner != nullptr && opt.wrap ? opt.wrap(*inner) : nullptr;
        return outer ? outer.get() : inner;
    };
    t = wrapped(t, loaded_.wrapped_target);
    d = wrapped(d, loaded_.wrapped_draft);
    start(t, d,
          {.tracing          = opt.tracing,
           .remote_draft     = opt.remote_draft,
           .n_ctx_remote     = opt.n_ctx_remote,
           .n_texts          = opt.n_parallel,
           .n_kept_bytes     = opt.n_kept_bytes,
           .prior            = opt.prior,
           .lookup           = lookup_,
           .on_target_thread = [cpus = opt.target.cpus] { begin_worker(cpus); },
           .on_draft_thread  = [cpus = opt.draft.cpus] { begin_worker(cpus); }});
    if (opt.remote_draft) {
        const auto lines =
            std::make_shared<draft_lines>(loaded_.line->ends(), opt.n_parallel, loaded_.target->facts().n_vocab);
        for (int32_t i = 0; i < opt.n_parallel; ++i) {
            draft_links_.push_back(std::make_shared<draft_link>(lines, i));
        }
    }
    if (!loaded_.target) {
        const auto lines = std::make_shared<target_lines>(loaded_.line->ends(), opt.n_parallel,
                                                          loaded_.draft->facts().n_vocab, opt.n_ctx_remote);
        for (int32_t i = 0; i < opt.n_parallel; ++i) {
            target_links_.push_back(std::make_shared<target_link>(lines, i));
        }
    }
}

// Token ids of both models mean the same text, or they will be translated. Such a draft may need more tokens for a text
// than its target, so it gets a larger context, unless the user gave one. Returns its weights.
std::shared_ptr<const model_weights> engine::join_vocabularies(std::shared_ptr<const model_weights> draft) {
    const std::string difference = vocabulary_difference(loaded_.target->vocabulary.get(), draft->vocab());
    if (difference.empty()) {
        return draft;
    }
    loaded_.words =
        std::make_unique<translation>(loaded_.target->vocabulary, vocabulary(draft->model, draft->options.path));
    if (draft->head || !loaded_.words->is_of_use()) {
        throw error(error_kind::bad_value, misfit(difference));
    }
    shared_vocabulary_        = loaded_.words->shared();
    auto          wider       = std::make_shared<model_weights>(*draft);
    const int32_t n_ctx       = loaded_.target->facts().n_ctx;
    wider->options.n_ctx_most = n_ctx + n_ctx / 2;
    return wider;
}

engine::engine(const synthetic_options & opt) {
    loaded_.synthetic_target = std::make_unique<synthetic_model>(opt, false);
    if (opt.has_draft) {
        loaded_.synthetic_draft = std::make_unique<synthetic_model>(opt, true);
    }
    start(loaded_.synthetic_target.get(), loaded_.synthetic_draft.get(),
          {.tracing = opt.tracing, .n_texts = opt.n_texts});
}

void engine::start(token_model * target, token_model * draft, const pipeline::options & opt) {
    try {
        loaded_.line = std::make_unique<pipeline>(target, draft, opt);
    } catch (const std::system_error & e) {
        throw error(std::string("a thread could not be started (") + e.what() + "); free memory or raise ulimit -u");
    }
}

engine::~engine() {
    close();
}

std::shared_lock<std::shared_mutex> engine::enter() const {
    home_.require();
    std::shared_lock entered(gate_);
    if (loaded_.target && loaded_.target->weights().options.vocab_only) {
        throw error(error_kind::bad_value,
                    "this Duo was loaded with vocab_only or embedding and cannot write; load it without that");
    }
    if (!loaded_.line) {
        throw error(error_kind::cancelled, "this engine is closed; make a new one");
    }
    return entered;
}

std::shared_ptr<open_text> engine::begin(std::unique_ptr<request> req) {
    const auto entered = enter();
    req->scales        = scales_.of(req->scales);
    return loaded_.line->begin(std::move(req));
}

void engine::save_lookup(const std::string & path) const {
    home_.require();
    const std::shared_lock entered(gate_);
    if (loaded_.line) {
        throw error(error_kind::busy, "texts may still be written; close this first");
    }
    if (lookup_) {
        lookup_->save(path);
    }
}

default_scales & engine::scales() {
    home_.require();
    return scales_;
}

std::shared_ptr<open_text> engine::begin(std::shared_ptr<errand> job, std::vector<token_id> prompt, int32_t place,
                                         lora_scales scales) {
    auto r    = std::make_unique<request>();
    r->wanted = place;
    r->job    = std::move(job);
    r->prompt = std::move(prompt);
    r->scales = std::move(scales);
    return begin(std::move(r));
}

bool engine::next(open_text & text, text_chunk & out, int64_t timeout_us) {
    home_.require();
    const std::shared_lock entered(gate_);
    return loaded_.line && loaded_.line->next(text, out, now_us() + timeout_us);
}

uint64_t engine::wait_news(uint64_t seen, int64_t timeout_us) {
    home_.require();
    const std::shared_lock entered(gate_);
    return loaded_.line ? loaded_.line->wait_news(seen, now_us() + timeout_us) : seen;
}

void engine::cancel(open_text & text) noexcept {
    if (!home_.is_this()) {
        return;
    }
    const std::shared_lock entered(gate_);
    if (loaded_.line) {
        loaded_.line->cancel(text);
    }
}

void engine::cancel_all() noexcept {
    if (!home_.is_this()) {
        return;
    }
    const std::shared_lock entered(gate_);
    if (loaded_.line) {
        loaded_.line->cancel_all();
    }
}

bool engine::running() const {
    if (!home_.is_this()) {
        return false;
    }
    const std::shared_lock entered(gate_);
    return loaded_.line && loaded_.line->running();
}

engine_usage engine::usage() const {
    const auto entered = enter();
    return loaded_.line->usage();
}

std::shared_ptr<wires> engine::ends() const {
    const auto entered = enter();
    return loaded_.line->ends();
}

void engine::close() noexcept {
    if (!home_.is_this()) { // the threads are not here to be joined, so nothing can be freed
        static_cast<void>(std::make_unique<loaded_models>(std::move(loaded_)).release());
        return;
    }
    {
        const std::shared_lock entered(gate_);
        if (loaded_.line) {
            loaded_.line->close(); // all texts end, so that their readers leave
        }
    }
    loaded_models gone; // freed after the lock: models take long, and a hook in Python is freed under the GIL
    {
        const std::unique_lock alone(gate_);
        gone = std::move(loaded_);
    }
}

void engine::with_plans(const std::function<void(planner &)> & use) const {
    const auto entered = enter();
    loaded_.line->with_plans(use);
}

void engine::take_trace(std::vector<trace_event> & target, std::vector<trace_event> & draft) {
    home_.require();
    const std::shared_lock entered(gate_);
    if (loaded_.line) {
        loaded_.line->take_trace(target, draft);
    }
}

} // namespace duo
