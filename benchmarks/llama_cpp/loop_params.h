// llama.cpp's own parameters for a target and a draft, from the command line of the loops.
#pragma once

#include "loop.h"

#include "common.h"
#include "speculative.h"

#include <string>

namespace loop {

inline common_cpu_params cpu_params(const placement & where) {
    common_cpu_params params;
    params.n_threads  = where.n_threads;
    params.mask_valid = !where.cores.empty();
    params.strict_cpu = where.cores.size() == (size_t)where.n_threads;
    for (const int core : where.cores) {
        if (core < 0 || core >= GGML_MAX_N_THREADS) {
            throw std::runtime_error("there is no core " + std::to_string(core));
        }
        params.cpumask[core] = true;
    }
    return params;
}

inline common_params make_params(const options & opts) {
    common_params params;
    params.model.path          = opts.target.path;
    params.devices             = opts.target.devices;
    params.n_gpu_layers        = opts.target.n_gpu_layers;
    params.cpuparams           = cpu_params(opts.target);
    params.cpuparams_batch     = params.cpuparams;
    params.n_ctx               = opts.n_ctx;
    params.n_batch             = opts.n_ctx > 0 ? opts.n_ctx : params.n_batch;
    params.fit_params          = false; // layers and context are as asked, not as found to fit
    params.sampling.ignore_eos = opts.ignore_eos;

    params.n_parallel = opts.n_slots;
    params.kv_unified = opts.n_slots > 1; // as llama-server without -np

    auto & draft = params.speculative.draft;
    if (opts.mtp) {
        params.speculative.types = {COMMON_SPECULATIVE_TYPE_DRAFT_MTP};
    } else if (!opts.draft.path.empty()) {
        params.speculative.types = {COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE};
    }
    draft.mparams.path    = opts.draft.path;
    draft.devices         = opts.draft.devices;
    draft.n_gpu_layers    = opts.draft.n_gpu_layers;
    draft.cpuparams       = cpu_params(opts.draft);
    draft.cpuparams_batch = draft.cpuparams;
    draft.n_max           = opts.n_draft;
    draft.p_min           = opts.p_min;

    const auto limits            = common_speculative_get_output_limits(params.n_batch, params.n_parallel,
                                                                        common_speculative_n_max(&params.speculative));
    params.n_outputs_max         = limits.total;
    params.n_outputs_max_per_seq = limits.per_seq;
    return params;
}

// Greedy by the shortest chain, or llama.cpp's default filters at a temperature. Called after loading, because metadata
// in the model may have changed the parameters.
inline void set_sampling(common_params & params, const options & opts) {
    auto & sampling   = params.sampling;
    sampling.mirostat = 0;
    if (opts.temp <= 0) {
        sampling.top_k    = 1;
        sampling.samplers = {COMMON_SAMPLER_TYPE_TOP_K};
        return;
    }
    sampling.top_k    = default_top_k;
    sampling.top_p    = default_top_p;
    sampling.min_p    = default_min_p;
    sampling.temp     = opts.temp;
    sampling.seed     = opts.seed;
    sampling.samplers = {COMMON_SAMPLER_TYPE_TOP_K, COMMON_SAMPLER_TYPE_TOP_P, COMMON_SAMPLER_TYPE_MIN_P,
                         COMMON_SAMPLER_TYPE_TEMPERATURE};
}

} // namespace loop
