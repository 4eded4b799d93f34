// Several texts at once in llama.cpp, in the order of llama-server's loop: all drafts in one batch a step, then one
// pass of the target over the rows of all texts. Prompts are read beside texts that are written. Without -md: plain
// decoding.
#include "loop.h"
#include "loop_params.h"

#include "common.h"
#include "log.h"
#include "sampling.h"
#include "speculative.h"

#include <algorithm>
#include <clocale>
#include <memory>
#include <span>

namespace {

// One text, and its place in the cache.
struct slot {
    common_sampler_ptr sampler;
    llama_tokens       context; // what the target's cache holds, and the rest of the prompt
    size_t             n_read  = 0;
    llama_token        id_last = 0;
    llama_tokens       draft;
    std::vector<int>   i_rows;            // of id_last and the draft in the pass; or of the prompt's last token
    loop::result *     out     = nullptr; // null: the slot is free
    int64_t            t_start = 0;

    [[nodiscard]] bool reads() const { return out != nullptr && n_read < context.size(); }
};

class server {
  public:
    explicit server(const loop::options & opts) : params_(loop::make_params(opts)), n_predict_(opts.n_predict) {
        init_ = common_init_from_params(params_);
        ctx_  = init_->context();
        if (!ctx_) {
            throw std::runtime_error("cannot load " + opts.target.path);
        }
        if (!opts.draft.path.empty()) {
            auto params_dft = common_base_params_to_speculative(params_);
            init_dft_       = common_speculative_init_from_params(params_dft, init_->model(), ctx_);
            ctx_dft_        = init_dft_->context();
            if (!ctx_dft_) {
                throw std::runtime_error("cannot load " + opts.draft.path);
            }
            params_dft.cpuparams = params_dft.cpuparams_batch = params_.speculative.draft.cpuparams;
            threads_dft_                                      = std::make_unique<common_threadpools>();
            threads_dft_->init(ctx_dft_, params_dft);
            params_.speculative.draft.ctx_tgt = ctx_;
            params_.speculative.draft.ctx_dft = ctx_dft_;
            spec_.reset(common_speculative_init(params_.speculative, params_.n_parallel));
            if (!spec_) {
                throw std::runtime_error("llama.cpp could not start speculating with " + opts.draft.path);
            }
        }
        for (auto * ctx : {ctx_, ctx_dft_}) {
            if (ctx && common_context_can_seq_rm(ctx) != COMMON_CONTEXT_SEQ_RM_TYPE_PART) {
                throw std::runtime_error("a model that cannot take tokens back is not supported by this comparator");
            }
        }
        loop::set_sampling(params_, opts);
        slots_.resize(size_t(params_.n_parallel));
        for (slot & s : slots_) {
            s.sampler.reset(common_sampler_init(init_->model(), params_.sampling));
        }
    }

    [[nodiscard]] const llama_vocab * vocab() const { return llama_model_get_vocab(init_->model()); }

    // All prompts, as many at once as there are slots.
    std::vector<loop::result> run(const std::vector<llama_tokens> & prompts, int32_t n_predict) {
        n_predict_ = n_predict;
        std::vector<loop::result> results(prompts.size());
        llama_memory_clear(llama_get_memory(ctx_), true);
        if (ctx_dft_) {
            llama_memory_clear(llama_get_memory(ctx_dft_), true);
        }
        t0_ = ggml_time_us();
        for (size_t n_begun = 0;;) {
            for (slot & s : slots_) {
                if (s.out == nullptr && n_begun < prompts.size()) {
                    begin(s, prompts[n_begun], results[n_begun]);
                    ++n_begun;
                }
            }
            if (std::all_of(slots_.begin(), slots_.end(), [](const slot & s) { return s.out == nullptr; })) {
                return results;
            }
            draft();
            pass();
        }
    }

  private:
    [[nodiscard]] llama_seq_id index(const slot & s) const { return llama_seq_id(&s - slots_.data()); }

    void begin(slot & s, const llama_tokens & prompt, loop::result & out) {
        s.context    = prompt;
        s.n_read     = 0;
        s.out        = &out;
        s.t_start    = t0_; // all came at once; a text that waits for a slot waits for its first token too
        out.n_prompt = int32_t(prompt.size());
        common_sampler_reset(s.sampler.get());
        clear(s, 0);
    }

    void clear(const slot & s, llama_pos from) const {
        llama_memory_seq_rm(llama_get_memory(ctx_), index(s), from, -1);
        if (ctx_dft_) {
            llama_memory_seq_rm(llama_get_memory(ctx_dft_), index(s), from, -1);
        }
    }

    void draft() {
        bool any = false;
        for (slot & s : slots_) {
            s.draft.clear();
            if (s.out == nullptr || s.reads() || !spec_) {
                continue;
            }
            // For llama.cpp a limit of 0 means none, so the last token of the budget is not drafted for at all.
            const int32_t n_max = n_predict_ - int32_t(s.out->tokens.size()) - 1;
            auto &        want  = common_speculative_get_draft_params(spec_.get(), index(s));
            want.drafting       = false;
            if (n_max > 0) {
                want = {true, n_max, llama_pos(s.context.size()), s.id_last, &s.context, &s.draft};
                any  = true;
            }
        }
        if (any) {
            common_speculative_draft(spec_.get());
            for (const slot & s : slots_) {
                if (s.out != nullptr && !s.reads()) {
                    llama_memory_seq_rm(llama_get_memory(ctx_dft_), index(s), llama_pos(s.context.size()), -1);
                }
            }
        }
    }

    // One pass: the rows of texts that are written, then prompts as far as the batch has room.
    void pass() {
        common_batch batch(ctx_);
        int32_t      n_left = params_.n_batch;
        for (slot & s : slots_) {
            s.i_rows.clear();
            if (s.out == nullptr || s.reads()) {
                continue;
            }
            auto pos = llama_pos(s.context.size());
            s.i_rows.push_back(batch.add(s.id_last, pos++, index(s), true));
            for (const llama_token id : s.draft) {
                s.i_rows.push_back(batch.add(id, pos++, index(s), true));
            }
            n_left -= int32_t(s.i_rows.size());
        }
        for (slot & s : slots_) {
            for (; s.reads() && n_left > 0; ++s.n_read, --n_left) {
                const bool last = s.n_read + 1 == s.context.size();
                const int  row  = batch.add(s.context[s.n_read], llama_pos(s.n_read), index(s), last);
                if (last) {
                    s.i_rows.push_back(row);
                }
            }
        }
        if (llama_process(ctx_, LLAMA_PROCESS_TYPE_DECODE, batch.get()) != 0) {
            throw std::runtime_error("llama.cpp could not decode a batch");
        }
        if (spec_ && !common_speculative_process(spec_.get(), batch)) {
            throw std::runtime_error("llama.cpp could not decode a batch with the draft model");
        }
        for (slot & s : slots_) {
            if (!s.i_rows.empty()) {
                accept(s);
            }
        }
    }

    void accept(slot & s) {
        loop::result & r     = *s.out;
        const bool     first = r.n_first == 0;
        if (first && spec_) {
            common_speculative_begin(spec_.get(), index(s), s.context);
        }
        const auto ids = common_sampler_sample_and_accept_n(s.sampler.get(), ctx_, s.i_rows, s.draft);
        if (first) {
            r.prompt_us = r.first_us = ggml_time_us() - s.t_start;
            r.n_first                = 1;
        } else {
            if (!s.draft.empty()) {
                common_speculative_accept(spec_.get(), index(s), uint16_t(ids.size() - 1));
            }
            r.n_passes += 1;
            r.n_drafted += int32_t(s.draft.size());
            r.n_accepted += int32_t(ids.size()) - 1;
            s.context.push_back(s.id_last);
            s.context.insert(s.context.end(), ids.begin(), ids.end() - 1);
        }
        s.n_read = s.context.size();
        bool end = false;
        for (const llama_token id : ids) {
            end = llama_vocab_is_eog(vocab(), id);
            if (!end) {
                r.tokens.push_back(id);
            }
            s.id_last = id;
        }
        if (end || int32_t(r.tokens.size()) >= n_predict_) {
            r.total_us = ggml_time_us() - s.t_start;
            s.out      = nullptr;
            clear(s, 0);
        } else {
            clear(s, llama_pos(s.context.size()));
        }
    }

    common_params                       params_;
    int32_t                             n_predict_;
    common_init_result_ptr              init_;
    std::unique_ptr<common_threadpools> threads_dft_;
    common_speculative_init_result_ptr  init_dft_;
    common_speculative_ptr              spec_;
    llama_context *                     ctx_     = nullptr;
    llama_context *                     ctx_dft_ = nullptr;
    std::vector<slot>                   slots_;
    int64_t                             t0_ = 0;
};

} // namespace

// A line of stdin names the prompts of one run, with tabs between; a line of stdout has all its texts.
int main(int argc, char ** argv) {
    std::setlocale(LC_NUMERIC, "C");
    llama_log_set(loop::log_errors, nullptr);
    common_log_set_verbosity_thold(LOG_LEVEL_ERROR);
    try {
        const auto opts = loop::parse_options(argc, argv);
        llama_backend_init();
        server     all(opts);
        const auto warmup = loop::tokenize(all.vocab(), "The quick brown fox jumps over the lazy dog.");
        all.run(std::vector<llama_tokens>(size_t(opts.n_slots), warmup), loop::n_predict_warmup);
        for (std::string line; std::getline(std::cin, line);) {
            std::vector<llama_tokens> prompts;
            for (const auto & path : loop::split(line, '\t')) {
                prompts.push_back(loop::tokenize(all.vocab(), loop::read_file(path)));
            }
            const int64_t t0      = ggml_time_us();
            const auto    results = all.run(prompts, opts.n_predict);
            const double  seconds = double(ggml_time_us() - t0) / 1e6;
            std::this_thread::sleep_for(std::chrono::milliseconds(50)); // OpenMP threads spin for a while
            std::printf("{\"seconds\": %.6f, \"texts\": [", seconds);
            for (size_t i = 0; i < results.size(); ++i) {
                std::printf(i ? ", " : "");
                loop::print_json(results[i]);
            }
            std::printf("]}\n");
            std::fflush(stdout);
        }
        return 0;
    } catch (const std::exception & error) {
        std::fprintf(stderr, "slots_loop: %s\n", error.what());
        return 1;
    }
}
