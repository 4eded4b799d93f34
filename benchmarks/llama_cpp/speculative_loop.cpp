// llama.cpp's own speculation, as its examples/speculative-simple shows it: draft, verify, draft, verify, by turns.
#include "loop.h"
#include "loop_params.h"

#include "common.h"
#include "log.h"
#include "sampling.h"
#include "speculative.h"

#include <algorithm>
#include <clocale>
#include <memory>

#ifdef __linux__
#include <sched.h>
#endif

namespace {

constexpr llama_seq_id seq_id = 0;

// Target and draft, loaded once. Members are destroyed bottom to top.
class speculative_pair {
  public:
    explicit speculative_pair(const loop::options & opts);

    const llama_context * context() const { return ctx_tgt_; }

    loop::result generate(const llama_tokens & prompt, int32_t n_predict);

  private:
    // One thread runs both models. With cores of its own for each, it moves over before each call.
    static void move_to(const std::vector<int> & cores);
    void        decode_on_both(common_batch & batch);

    std::vector<int>                    cores_tgt_, cores_dft_;
    common_params                       params_;
    common_init_result_ptr              init_tgt_;
    std::unique_ptr<common_threadpools> threads_dft_;
    common_speculative_init_result_ptr  init_dft_;
    common_speculative_ptr              spec_;
    common_sampler_ptr                  sampler_;
    llama_context *                     ctx_tgt_ = nullptr;
    llama_context *                     ctx_dft_ = nullptr;
};

speculative_pair::speculative_pair(const loop::options & opts) : params_(loop::make_params(opts)) {
    if (opts.target.cores != opts.draft.cores) {
        cores_tgt_ = opts.target.cores;
        cores_dft_ = opts.draft.cores;
    }
    init_tgt_ = common_init_from_params(params_);
    ctx_tgt_  = init_tgt_->context();
    if (!ctx_tgt_) {
        throw std::runtime_error("cannot load " + opts.target.path);
    }
    auto params_dft = common_base_params_to_speculative(params_);
    init_dft_       = common_speculative_init_from_params(params_dft, init_tgt_->model(), ctx_tgt_);
    ctx_dft_        = init_dft_->context();
    if (!ctx_dft_) {
        throw std::runtime_error(opts.mtp ? "cannot draft with the MTP layers of " + opts.target.path
                                          : "cannot load " + opts.draft.path);
    }
    // llama.cpp gives a thread pool, and with it the CPU mask, to the target only
    params_dft.cpuparams = params_dft.cpuparams_batch = params_.speculative.draft.cpuparams;
    threads_dft_                                      = std::make_unique<common_threadpools>();
    threads_dft_->init(ctx_dft_, params_dft);

    for (auto * ctx : {ctx_tgt_, ctx_dft_}) {
        if (common_context_can_seq_rm(ctx) != COMMON_CONTEXT_SEQ_RM_TYPE_PART) {
            throw std::runtime_error("a model that cannot take tokens back is not supported by this comparator");
        }
    }
    params_.speculative.draft.ctx_tgt = ctx_tgt_;
    params_.speculative.draft.ctx_dft = ctx_dft_;
    spec_.reset(common_speculative_init(params_.speculative, 1));
    if (!spec_) {
        throw std::runtime_error("llama.cpp could not start speculating with " +
                                 (opts.mtp ? opts.target.path : opts.draft.path));
    }
    loop::set_sampling(params_, opts);
    sampler_.reset(common_sampler_init(init_tgt_->model(), params_.sampling));
}

void speculative_pair::move_to(const std::vector<int> & cores) {
#ifdef __linux__
    if (!cores.empty()) {
        cpu_set_t set;
        CPU_ZERO(&set);
        for (const int core : cores) {
            CPU_SET(core, &set);
        }
        if (sched_setaffinity(0, sizeof(set), &set) != 0) {
            throw std::runtime_error("cannot run on the cores asked for");
        }
    }
#else
    (void)cores;
#endif
}

void speculative_pair::decode_on_both(common_batch & batch) {
    move_to(cores_tgt_);
    if (llama_process(ctx_tgt_, LLAMA_PROCESS_TYPE_DECODE, batch.get()) != 0) {
        throw std::runtime_error("llama.cpp could not decode a batch");
    }
    move_to(cores_dft_);
    if (!common_speculative_process(spec_.get(), batch)) {
        throw std::runtime_error("llama.cpp could not decode a batch with the draft model");
    }
}

loop::result speculative_pair::generate(const llama_tokens & prompt, int32_t n_predict) {
    const llama_vocab * vocab   = llama_model_get_vocab(init_tgt_->model());
    auto *              mem_tgt = llama_get_memory(ctx_tgt_);
    auto *              mem_dft = llama_get_memory(ctx_dft_);
    loop::result        r;
    r.n_prompt = (int32_t)prompt.size();
    r.tokens.reserve(n_predict);
    common_batch batch(ctx_tgt_);
    llama_memory_clear(mem_tgt, true);
    llama_memory_clear(mem_dft, true);
    common_sampler_reset(sampler_.get());

    const int64_t t_start = ggml_time_us();

    // the last token of the prompt is left for the first verification
    llama_tokens context(prompt.begin(), prompt.end() - 1);
    llama_token  id_last = prompt.back();
    for (size_t i = 0; i < context.size(); ++i) {
        batch.add(context[i], (llama_pos)i, seq_id, false);
    }
    if (!context.empty()) {
        decode_on_both(batch);
        llama_synchronize(ctx_tgt_);
        llama_synchronize(ctx_dft_);
    }
    common_speculative_begin(spec_.get(), seq_id, context);
    r.prompt_us = ggml_time_us() - t_start;

    for (bool ended = false; !ended && (int32_t)r.tokens.size() < n_predict;) {
        const auto   n_past = (llama_pos)context.size();
        llama_tokens draft;

        // for llama.cpp a limit of 0 means none, so the last token of the budget is not drafted for at all
        if (const int32_t n_max = n_predict - (int32_t)r.tokens.size() - 1; n_max > 0) {
            auto & request = common_speculative_get_draft_params(spec_.get(), seq_id);
            request        = {true, n_max, n_past, id_last, &context, &draft};
            move_to(cores_dft_);
            common_speculative_draft(spec_.get());
            llama_memory_seq_rm(mem_dft, seq_id, n_past, -1);
        }

        batch.clear();
        batch.add(id_last, n_past, seq_id, true);
        for (size_t i = 0; i < draft.size(); ++i) {
            batch.add(draft[i], n_past + 1 + (llama_pos)i, seq_id, true);
        }
        decode_on_both(batch);
        move_to(cores_tgt_);
        const auto ids = common_sampler_sample_and_accept_n(sampler_.get(), ctx_tgt_, draft);
        common_speculative_accept(spec_.get(), seq_id, (uint16_t)(ids.size() - 1));

        r.n_passes += 1;
        r.n_drafted += (int32_t)draft.size();
        r.n_accepted += (int32_t)ids.size() - 1;
        for (const llama_token id : ids) {
            context.push_back(id_last);
            id_last = id;
            if (ended = llama_vocab_is_eog(vocab, id); ended) {
                break;
            }
            r.tokens.push_back(id);
        }
        if (r.n_passes == 1) {
            r.first_us = ggml_time_us() - t_start;
            r.n_first  = (int32_t)r.tokens.size();
        }
        llama_memory_seq_rm(mem_tgt, seq_id, (llama_pos)context.size(), -1);
        llama_memory_seq_rm(mem_dft, seq_id, (llama_pos)context.size(), -1);
    }
    r.total_us = ggml_time_us() - t_start;
    return r;
}

} // namespace

int main(int argc, char ** argv) {
    std::setlocale(LC_NUMERIC, "C");
    llama_log_set(loop::log_errors, nullptr);
    common_log_set_verbosity_thold(LOG_LEVEL_ERROR);
    try {
        const auto opts = loop::parse_options(argc, argv);
        if (opts.draft.path.empty() && !opts.mtp) {
            throw std::runtime_error("-md DRAFT.gguf or --mtp is missing");
        }
        llama_backend_init();
        speculative_pair pair(opts);
        loop::run_prompts(pair.context(), opts, opts.n_draft + 1,
                          [&](const auto & prompt, int32_t n_predict) { return pair.generate(prompt, n_predict); });
        return 0;
    } catch (const std::exception & error) {
        std::fprintf(stderr, "speculative_loop: %s\n", error.what());
        return 1;
    }
}
