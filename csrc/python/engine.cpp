#include "engine.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <system_error>

#if defined(__linux__)
#include <pthread.h>
#include <sched.h>
#endif

#include "base/error.h"
#include "llama/lone_head.h"
#include "llama/lora.h"
#include "llama/pair_check.h"
#include "llama/shared_rpc.h"
#include "llama/stock_kernels.h"
#include "llama/weights_loader.h"

namespace duo {

// Threads that OpenMP or ggml start from this thread inherit the mask, so it binds the whole team.
void pin_this_thread(const std::vector<int32_t> & cpus) {
#if defined(__linux__)
    if (cpus.empty()) {
        return;
    }
    cpu_set_t set;
    CPU_ZERO(&set);
    for (const int32_t cpu : cpus) {
        CPU_SET(size_t(cpu), &set);
    }
    pthread_setaffinity_np(pthread_self(), sizeof set, &set);
#else
    (void)cpus;
#endif
}

void check_cpus(const std::vector<int32_t> & cpus) {
#if defined(__linux__)
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    sched_getaffinity(0, sizeof allowed, &allowed);
    for (const int32_t cpu : cpus) {
        if (cpu < 0 || cpu >= CPU_SETSIZE || !CPU_ISSET(size_t(cpu), &allowed)) {
            throw error(error_kind::bad_value, "CPU " + std::to_string(cpu) +
                                                   " is not available to this process (it may run on " +
                                                   std::to_string(CPU_COUNT(&allowed)) + " CPUs); choose others");
        }
    }
#else
    if (!cpus.empty()) {
        throw error(error_kind::bad_value, "CPU masks and ranges work on Linux only; leave them out");
    }
#endif
}

engine::engine(const engine_options & opt) {
    check_cpus(opt.target.cpus);
    check_cpus(opt.draft.cpus);
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
        auto eyes        = opt.projector.path.empty() ? nullptr : std::make_shared<projector>(opt.projector, *weights);
        target_          = std::make_shared<llama_token_model>(std::move(weights), nullptr, std::move(eyes));
        scales_          = loaded_scales(opt.target);
    }
    if (opt.target.vocab_only) {
        target_view_ = target_;
        return;
    }
    if (!opt.draft.path.empty()) {
        model_options d = opt.draft;
        d.n_ctx_most    = target_ ? target_->facts().n_ctx : opt.n_ctx_remote;
        if (head && d.n_ctx == 0) {
            d.n_ctx = target_->facts().n_ctx; // its own limit says how it was trained
        }
        const model_weights * of_target = target_ ? &target_->weights() : nullptr;
        auto                  weights   = has_own ? mtp_weights(d, *of_target) : load_weights(d, true, of_target);
        if (target_) {
            weights = join_vocabularies(std::move(weights));
        }
        draft_ = std::make_shared<llama_token_model>(std::move(weights), target_.get());
        if (words_) {
            translated_draft_ = std::make_unique<translated_model>(*draft_, target_->vocabulary(), *words_);
        } else if (target_) {
            draft_->sampler()->limit_vocab(target_->facts().n_vocab);
        }
    }
    if (!opt.lookup_static.empty() || !opt.lookup_dynamic.empty()) {
        if (!target_) {
            throw error(error_kind::bad_value,
                        "--lookup-cache-static and --lookup-cache-dynamic need the target in this "
                        "process, and it is in another one; leave them out");
        }
        lookup_ = std::make_shared<lookup_cache>(opt.lookup_static, opt.lookup_dynamic, target_->facts().n_vocab);
    }
    target_view_          = target_;
    draft_view_           = draft_;
    token_model * t       = target_.get();
    token_model * d       = translated_draft_ ? static_cast<token_model *>(translated_draft_.get()) : draft_.get();
    const auto    wrapped = [&opt](token_model * inner, std::unique_ptr<token_model> & outer) {
        outer = inner != nullptr && opt.wrap ? opt.wrap(*inner) : nullptr;
        return outer ? outer.get() : inner;
    };
    t = wrapped(t, wrapped_target_);
    d = wrapped(d, wrapped_draft_);
    start(t, d,
          {.tracing          = opt.tracing,
           .remote_draft     = opt.remote_draft,
           .n_ctx_remote     = opt.n_ctx_remote,
           .n_texts          = opt.n_parallel,
           .n_kept_bytes     = opt.n_kept_bytes,
           .prior            = opt.prior,
           .lookup           = lookup_,
           .on_target_thread = [cpus = opt.target.cpus] { pin_this_thread(cpus); },
           .on_draft_thread  = [cpus = opt.draft.cpus] { pin_this_thread(cpus); }});
    if (opt.remote_draft) {
        const auto lines = std::make_shared<draft_lines>(pipeline_->ends(), opt.n_parallel, target_->facts().n_vocab);
        for (int32_t i = 0; i < opt.n_parallel; ++i) {
            draft_links_.push_back(std::make_shared<draft_link>(lines, i));
        }
    }
    if (!target_) {
        const auto lines = std::make_shared<target_lines>(pipeline_->ends(), opt.n_parallel, draft_->facts().n_vocab,
                                                          opt.n_ctx_remote);
        for (int32_t i = 0; i < opt.n_parallel; ++i) {
            target_links_.push_back(std::make_shared<target_link>(lines, i));
        }
    }
}

// Token ids of both models mean the same text, or they will be translated. Such a draft may need more tokens for a text
// than its target, so it gets a larger context, unless the user gave one. Returns its weights.
std::shared_ptr<const model_weights> engine::join_vocabularies(std::shared_ptr<const model_weights> draft) {
    const std::string difference = vocabulary_difference(target_->vocabulary().get(), draft->vocab());
    if (difference.empty()) {
        return draft;
    }
    words_ = std::make_unique<translation>(target_->vocabulary(), vocabulary(draft->model, draft->options.path));
    if (draft->head || !words_->is_of_use()) {
        throw error(error_kind::bad_value, misfit(difference));
    }
    shared_vocabulary_        = words_->shared();
    auto          wider       = std::make_shared<model_weights>(*draft);
    const int32_t n_ctx       = target_->facts().n_ctx;
    wider->options.n_ctx_most = n_ctx + n_ctx / 2;
    return wider;
}

engine::engine(const synthetic_options & opt) {
    synthetic_target_ = std::make_unique<synthetic_model>(opt, false);
    if (opt.has_draft) {
        synthetic_draft_ = std::make_unique<synthetic_model>(opt, true);
    }
    start(synthetic_target_.get(), synthetic_draft_.get(), {.tracing = opt.tracing, .n_texts = opt.n_texts});
}

void engine::start(token_model * target, token_model * draft, const pipeline::options & opt) {
    try {
        pipeline_ = std::make_unique<pipeline>(target, draft, opt);
    } catch (const std::system_error & e) {
        throw error(std::string("a thread could not be started (") + e.what() + "); free memory or raise ulimit -u");
    }
}

engine::~engine() {
    close();
}

void engine::require_home() const {
    if (!home_.is_this()) {
        throw error(error_kind::bad_value,
                    "this Duo belongs to the process that this one was forked from, and so do its "
                    "threads; make a Duo in this process");
    }
}

// Nothing of it can be freed in a forked process: its threads are not there to be joined.
void engine::leave_to_parent() noexcept {
    static_cast<void>(pipeline_.release());
    static_cast<void>(translated_draft_.release());
    static_cast<void>(words_.release());
    static_cast<void>(wrapped_target_.release());
    static_cast<void>(wrapped_draft_.release());
    static_cast<void>(synthetic_target_.release());
    static_cast<void>(synthetic_draft_.release());
    for (auto * model : {&target_, &draft_}) {
        if (*model) {
            static_cast<void>(std::make_unique<std::shared_ptr<llama_token_model>>(std::move(*model)).release());
        }
    }
}

std::shared_lock<std::shared_mutex> engine::enter() const {
    require_home();
    std::shared_lock entered(gate_);
    if (target_ && target_->weights().options.vocab_only) {
        throw error(error_kind::bad_value,
                    "this Duo was loaded with vocab_only or embedding and cannot write; load it without that");
    }
    if (!pipeline_) {
        throw error(error_kind::cancelled, "this engine is closed; make a new one");
    }
    return entered;
}

std::shared_ptr<open_text> engine::begin(std::unique_ptr<request> req) {
    const auto entered = enter();
    if (req->scales.empty()) {
        req->scales = scales();
    } else {
        check_scales(req->scales);
    }
    return pipeline_->begin(std::move(req));
}

void engine::save_lookup(const std::string & path) const {
    require_home();
    const std::shared_lock entered(gate_);
    if (pipeline_) {
        throw error(error_kind::busy, "texts may still be written; close this first");
    }
    if (lookup_) {
        lookup_->save(path);
    }
}

void engine::check_scales(const lora_scales & scales) const {
    const auto   model = target(); // close() may free it meanwhile
    const size_t n     = model ? model->weights().loras.size() : 0;
    if (scales.size() != n) {
        throw error(error_kind::bad_value, std::to_string(scales.size()) + " scales of LoRA adapters were given, and " +
                                               (model ? std::to_string(n) + " adapters are loaded (--lora)"
                                                      : "the target is in another process, where they are set"));
    }
    if (!std::ranges::all_of(scales, [](float x) { return std::isfinite(x); })) {
        throw error(error_kind::bad_value, "a LoRA adapter's scale is no finite number; give one, such as 1");
    }
}

void engine::set_scales(const lora_scales & scales) {
    require_home();
    check_scales(scales);
    const std::lock_guard locked(scales_lock_);
    scales_ = scales;
}

lora_scales engine::scales() const {
    require_home();
    const std::lock_guard locked(scales_lock_);
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
    require_home();
    const std::shared_lock entered(gate_);
    return pipeline_ && pipeline_->next(text, out, now_us() + timeout_us);
}

uint64_t engine::wait_news(uint64_t seen, int64_t timeout_us) {
    require_home();
    const std::shared_lock entered(gate_);
    return pipeline_ ? pipeline_->wait_news(seen, now_us() + timeout_us) : seen;
}

void engine::cancel(open_text & text) noexcept {
    if (!home_.is_this()) {
        return;
    }
    const std::shared_lock entered(gate_);
    if (pipeline_) {
        pipeline_->cancel(text);
    }
}

void engine::cancel_all() noexcept {
    if (!home_.is_this()) {
        return;
    }
    const std::shared_lock entered(gate_);
    if (pipeline_) {
        pipeline_->cancel_all();
    }
}

bool engine::running() const {
    if (!home_.is_this()) {
        return false;
    }
    const std::shared_lock entered(gate_);
    return pipeline_ && pipeline_->running();
}

engine_usage engine::usage() const {
    const auto entered = enter();
    return pipeline_->usage();
}

std::shared_ptr<wires> engine::ends() const {
    const auto entered = enter();
    return pipeline_->ends();
}

void engine::close() noexcept {
    if (!home_.is_this()) {
        return leave_to_parent();
    }
    {
        const std::shared_lock entered(gate_);
        if (pipeline_) {
            pipeline_->close(); // all texts end, so that their readers leave
        }
    }
    // Freed after the lock: models take long, and a hook in Python is freed under the GIL.
    std::shared_ptr<llama_token_model> target, draft;
    std::unique_ptr<translated_model>  translated;
    std::unique_ptr<synthetic_model>   synthetic_target, synthetic_draft;
    std::unique_ptr<token_model>       wrapped_target, wrapped_draft;
    std::unique_ptr<pipeline>          line; // first: it uses the models
    {
        const std::unique_lock alone(gate_);
        target           = std::move(target_);
        draft            = std::move(draft_);
        synthetic_target = std::move(synthetic_target_);
        synthetic_draft  = std::move(synthetic_draft_);
        translated       = std::move(translated_draft_);
        wrapped_target   = std::move(wrapped_target_);
        wrapped_draft    = std::move(wrapped_draft_);
        line             = std::move(pipeline_);
    }
}

void engine::with_plans(const std::function<void(planner &)> & use) const {
    const auto entered = enter();
    pipeline_->with_plans(use);
}

void engine::take_trace(std::vector<trace_event> & target, std::vector<trace_event> & draft) {
    require_home();
    const std::shared_lock entered(gate_);
    if (pipeline_) {
        pipeline_->take_trace(target, draft);
    }
}

} // namespace duo
