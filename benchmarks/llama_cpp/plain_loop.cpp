// llama.cpp's own decoding loop, as its examples/simple shows it: one token, one pass, greedy or sampled.
#include "loop.h"

#include "llama-cpp.h"

#include <clocale>
#include <cmath>
#include <memory>

namespace {

struct batch_deleter {
    void operator()(llama_batch_ext * batch) const { llama_batch_ext_free(batch); }
};

using batch_ptr = std::unique_ptr<llama_batch_ext, batch_deleter>;

llama_model_ptr load_model(const loop::placement & where) {
    auto params         = llama_model_default_params();
    auto devices        = where.devices;
    params.n_gpu_layers = where.n_gpu_layers;
    params.devices      = devices.empty() ? nullptr : devices.data();
    llama_model_ptr model(llama_model_load_from_file(where.path.c_str(), params));
    if (!model) {
        throw std::runtime_error("cannot load " + where.path);
    }
    return model;
}

llama_context_ptr make_context(llama_model * model, const loop::options & opts) {
    auto params            = llama_context_default_params();
    params.n_ctx           = opts.n_ctx;
    params.n_batch         = opts.n_ctx > 0 ? opts.n_ctx : llama_model_n_ctx_train(model);
    params.n_threads       = opts.target.n_threads;
    params.n_threads_batch = opts.target.n_threads;
    llama_context_ptr ctx(llama_init_from_model(model, params));
    if (!ctx) {
        throw std::runtime_error("cannot create a context for " + opts.target.path);
    }
    return ctx;
}

// With --ignore-eos, as in llama.cpp's tools, an end-of-generation token can never be chosen.
llama_sampler_ptr make_sampler(const llama_vocab * vocab, const loop::options & opts) {
    llama_sampler_ptr             sampler(llama_sampler_chain_init(llama_sampler_chain_default_params()));
    const int32_t                 n_vocab = llama_vocab_n_tokens(vocab);
    std::vector<llama_logit_bias> bias;
    for (llama_token id = 0; opts.ignore_eos && id < n_vocab; ++id) {
        if (llama_vocab_is_eog(vocab, id)) {
            bias.push_back({id, -INFINITY});
        }
    }
    if (!bias.empty()) {
        llama_sampler_chain_add(sampler.get(),
                                llama_sampler_init_logit_bias(n_vocab, (int32_t)bias.size(), bias.data()));
    }
    if (opts.temp > 0) {
        llama_sampler_chain_add(sampler.get(), llama_sampler_init_top_k(loop::default_top_k));
        llama_sampler_chain_add(sampler.get(), llama_sampler_init_top_p(loop::default_top_p, 0));
        llama_sampler_chain_add(sampler.get(), llama_sampler_init_min_p(loop::default_min_p, 0));
        llama_sampler_chain_add(sampler.get(), llama_sampler_init_temp(opts.temp));
        llama_sampler_chain_add(sampler.get(), llama_sampler_init_dist(opts.seed));
    } else {
        llama_sampler_chain_add(sampler.get(), llama_sampler_init_greedy());
    }
    return sampler;
}

void decode(llama_context * ctx, llama_batch_ext * batch, const llama_token * tokens, int32_t n_tokens, llama_pos pos) {
    llama_batch_ext_clear(batch);
    for (int32_t i = 0; i < n_tokens; ++i, ++pos) {
        llama_batch_ext_set_pos(batch, llama_batch_ext_add_token(batch, 0, tokens[i]), &pos);
    }
    llama_batch_ext_set_output_logits(batch, n_tokens - 1, true);
    if (llama_process(ctx, LLAMA_PROCESS_TYPE_DECODE, batch) != 0) {
        throw std::runtime_error("llama.cpp could not decode a batch");
    }
}

loop::result generate(llama_context * ctx, llama_sampler * sampler, const std::vector<llama_token> & prompt,
                      int32_t n_predict) {
    const llama_vocab * vocab = llama_model_get_vocab(llama_get_model(ctx));
    loop::result        r;
    r.n_prompt = (int32_t)prompt.size();
    r.tokens.reserve(n_predict);
    batch_ptr batch(llama_batch_ext_init(ctx));
    llama_memory_clear(llama_get_memory(ctx), true);
    llama_sampler_reset(sampler);

    const int64_t t_start = ggml_time_us();
    decode(ctx, batch.get(), prompt.data(), r.n_prompt, 0);
    llama_synchronize(ctx);
    r.prompt_us = ggml_time_us() - t_start;

    for (llama_pos pos = r.n_prompt;; ++pos) {
        const llama_token id = llama_sampler_sample(sampler, ctx, -1);
        if (pos == r.n_prompt) {
            r.first_us = ggml_time_us() - t_start;
        }
        if (llama_vocab_is_eog(vocab, id)) {
            break;
        }
        r.tokens.push_back(id);
        r.n_first = 1;
        if ((int32_t)r.tokens.size() == n_predict) {
            break;
        }
        decode(ctx, batch.get(), &id, 1, pos);
        ++r.n_passes;
    }
    r.total_us = ggml_time_us() - t_start;
    return r;
}

} // namespace

int main(int argc, char ** argv) {
    std::setlocale(LC_NUMERIC, "C");
    llama_log_set(loop::log_errors, nullptr);
    try {
        const auto opts = loop::parse_options(argc, argv);
        llama_backend_init();
        const auto model   = load_model(opts.target);
        const auto ctx     = make_context(model.get(), opts);
        const auto sampler = make_sampler(llama_model_get_vocab(model.get()), opts);
        loop::run_prompts(ctx.get(), opts, 0, [&](const auto & prompt, int32_t n_predict) {
            return generate(ctx.get(), sampler.get(), prompt, n_predict);
        });
        return 0;
    } catch (const std::exception & error) {
        std::fprintf(stderr, "plain_loop: %s\n", error.what());
        return 1;
    }
}
