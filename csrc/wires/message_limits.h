// The limits of a text that another process asks for. There is no other table: message_check.cpp checks by it, and so
// does the codec in Python (duo.remote.wire.codec_begin), which reads it as _core.LIMITS. The options have these bounds
// or narrower ones.
#pragma once

#include <cstddef>
#include <cstdint>

#include "text/request.h"

namespace duo {

constexpr size_t  n_text_most          = size_t(1) << 20; // tokens of a text that a host accepts
constexpr int32_t n_logprobs_most      = 100;
constexpr size_t  n_stops_most         = 64;
constexpr size_t  n_stop_bytes_most    = 1024;
constexpr size_t  n_bias_most          = 4096;
constexpr float   bias_most            = 1e9f; // or -inf
constexpr size_t  n_grammar_bytes_most = 4 * 65536;
constexpr size_t  n_breakers_most      = 64;
constexpr size_t  n_breaker_bytes_most = 40;
constexpr size_t  n_tree_most          = 63; // nodes; with the root a pass of 64 rows
constexpr int32_t n_rank_most          = 63;

// Calls f(name in Python, member, least, most) for each number of the sampling. A seed has no limits.
template <typename F> void each_sampling_limit(F && f) {
    using s                   = sampling_params;
    constexpr double most_i32 = INT32_MAX;
    f("temp", &s::temp, 0.0, 1e6);
    f("top_k", &s::top_k, -1.0, most_i32);
    f("top_p", &s::top_p, 0.0, 1.0);
    f("min_p", &s::min_p, 0.0, 1.0);
    f("repeat_penalty", &s::repeat_penalty, 1e-4, 1e3);
    f("presence_penalty", &s::presence_penalty, -1e4, 1e4);
    f("frequency_penalty", &s::frequency_penalty, -1e4, 1e4);
    f("repeat_last_n", &s::repeat_last_n, -1.0, 1 << 20);
    f("n_prompt", &s::n_prompt, -1.0, most_i32);
    f("n_left_out", &s::n_left_out, 0.0, most_i32);
    f("typical_p", &s::typical_p, 0.0, 1.0);
    f("top_n_sigma", &s::top_n_sigma, -1.0, 1e4);
    f("xtc_probability", &s::xtc_probability, 0.0, 1.0);
    f("xtc_threshold", &s::xtc_threshold, 0.0, 1.0);
    f("dynatemp_range", &s::dynatemp_range, 0.0, 1e6);
    f("dynatemp_exponent", &s::dynatemp_exponent, 0.0, 1e3);
    f("dry_multiplier", &s::dry_multiplier, 0.0, 1e4);
    f("dry_base", &s::dry_base, 1.0, 1e4);
    f("dry_allowed_length", &s::dry_allowed_length, 0.0, 1 << 20);
    f("dry_penalty_last_n", &s::dry_penalty_last_n, -1.0, 1 << 20);
    f("posterior_threshold", &s::posterior_threshold, 0.0, 1.0);
    f("posterior_alpha", &s::posterior_alpha, 0.0, 1.0);
    f("accept_top", &s::accept_top, 1.0, 1000.0);
}

// The same for the plan. get(plan) is the number.
template <typename F> void each_plan_limit(F && f) {
    using p = plan_params;
    f("n_draft", [](const p & x) { return x.n_max; }, double(n_draft_auto), double(n_draft_cap));
    f("n_draft_min", [](const p & x) { return x.n_min; }, 0.0, double(n_draft_cap));
    f("p_min", [](const p & x) { return x.p_min; }, 0.0, 1.0);
    f("n_branch", [](const p & x) { return x.n_branch; }, 0.0, double(n_step_cap));
    f("n_window", [](const p & x) { return x.n_window; }, double(n_window_auto), double(n_text_most));
    f("ngram_size_n", [](const p & x) { return x.ngram.size_n; }, 1.0, 1024.0);
    f("ngram_size_m", [](const p & x) { return x.ngram.size_m; }, 1.0, 1024.0);
    f("ngram_min_hits", [](const p & x) { return x.ngram.min_hits; }, 1.0, double(INT32_MAX));
}

} // namespace duo
