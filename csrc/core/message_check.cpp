#include "message_check.h"

#include <algorithm>
#include <cmath>

#include "../error.h"
#include "grammar_limits.h"
#include "sharpness.h"
#include "tree_shape.h"

namespace duo {

namespace {

constexpr float   longest_step_us   = 1e9f;
constexpr float   largest           = 1e4f;    // penalty; the same limit as on the command line
constexpr float   hottest           = 1e6f;    // temperature
constexpr int32_t n_dry_most        = 1 << 20; // tokens
constexpr int32_t n_accept_top_most = 1000;
constexpr size_t  n_breakers_most   = 64;
constexpr size_t  n_breaker_bytes   = 40;
constexpr size_t  n_stops_most      = 256;
constexpr size_t  n_stop_bytes      = 4096;
constexpr size_t  n_bias_most       = 65536;
constexpr int32_t n_row_most        = 1024; // more rows than any peer's batch has

[[noreturn]] void refuse(const std::string & what) {
    throw error(error_kind::peer_lost, "the other side sent " + what + "; use the same version of duo on both sides");
}

template <typename T> bool within(T x, T least, T most) {
    return x >= least && x <= most; // false for NaN
}

void check_sampling(const sampling_params & s) {
    if (!within(s.temp, 0.0f, hottest) || !within(s.top_p, 0.0f, 1.0f) || !within(s.min_p, 0.0f, 1.0f) ||
        !within(s.repeat_penalty, 0.0f, largest) || !within(s.presence_penalty, -largest, largest) ||
        !within(s.frequency_penalty, -largest, largest) || s.logit_bias.size() > n_bias_most) {
        refuse("impossible sampling options");
    }
    if (!within(s.typical_p, 0.0f, 1.0f) || !within(s.top_n_sigma, -largest, largest) ||
        !within(s.xtc_probability, 0.0f, 1.0f) || !within(s.xtc_threshold, 0.0f, 1.0f) ||
        !within(s.dynatemp_range, 0.0f, hottest) || !within(s.dynatemp_exponent, 0.0f, largest) ||
        !within(s.dry_multiplier, 0.0f, largest) || !within(s.dry_base, 1.0f, largest) ||
        !within(s.dry_allowed_length, 0, n_dry_most) || !within(s.dry_penalty_last_n, -1, n_dry_most)) {
        refuse("impossible sampling options");
    }
    if (s.accept > accept_rule::top_n || !within(s.posterior_threshold, 0.0f, 1.0f) ||
        !within(s.posterior_alpha, 0.0f, 1.0f) || !within(s.accept_top, 1, n_accept_top_most)) {
        refuse("an impossible rule of acceptance");
    }
    if (s.dry_sequence_breakers.size() > n_breakers_most) {
        refuse("too many sequence breakers");
    }
    for (const std::string & b : s.dry_sequence_breakers) {
        if (b.empty() || b.size() > n_breaker_bytes) {
            refuse("an impossible sequence breaker");
        }
    }
    if (s.grammar.find('\0') != std::string::npos || !grammar_too_large(s.grammar).empty() || s.n_prompt < -1) {
        refuse("an impossible grammar");
    }
    for (const auto & [token, bias] : s.logit_bias) {
        if (token < 0 || std::isnan(bias) || bias > 1e30f) {
            refuse("an impossible logit bias");
        }
    }
}

void check_plan(const plan_params & p) {
    if (p.mode > run_mode::async || p.use > tree_use::dynamic || p.ngram.kind > ngram_kind::map_k4v ||
        !within(p.n_max, n_draft_auto, n_draft_cap) || !within(p.n_min, 0, n_draft_cap) ||
        !within(p.p_min, 0.0f, 1.0f) || !within(p.n_branch, 0, n_draft_cap) || !within(p.n_ahead, 0, 1024) ||
        !within(p.n_window, n_window_auto, int32_t(n_text_most))) {
        refuse("an impossible plan");
    }
    size_t n_nodes = 0;
    for (const auto & path : p.tree) {
        n_nodes += path.size();
        for (const int32_t rank : path) {
            if (!within(rank, 0, n_draft_cap) || path.size() > size_t(n_draft_cap) ||
                n_nodes > size_t(n_draft_cap) * size_t(n_draft_cap)) {
                refuse("an impossible tree");
            }
        }
    }
    if (tree_shape(p.tree).n_nodes() > n_draft_cap) {
        refuse("an impossible tree");
    }
}

} // namespace

void check_node(const node_msg & n, int32_t n_vocab) {
    switch (n.what) {
        case node_msg::kind::node:
            if (n.id == no_node || n.id >> 63 != 0) {
                refuse("a node with an id that no draft gives");
            }
            if (n.token < 0 || n.token >= n_vocab) {
                refuse("a node with a token outside the vocabulary");
            }
            if (!(n.logp <= 1e-3f) || !std::isfinite(n.logp)) {
                refuse("a node with an impossible chance");
            }
            if (!within<int>(n.rank, 0, n_row_most) || !within<int>(n.n_rows, 0, n_row_most) ||
                !within(n.step_us, 0.0f, longest_step_us)) {
                refuse("a node with impossible figures");
            }
            break;
        case node_msg::kind::share:
            if (n.token < 0 || n.token >= n_vocab || !(n.logp <= 1e-3f) || !std::isfinite(n.logp)) {
                refuse("an impossible probability of a token");
            }
            break;
        case node_msg::kind::pause:
        case node_msg::kind::failed:
            break;
        default:
            refuse("a node of a kind that no draft sends");
    }
}

void check_verdict(const verdict_msg & v) {
    if (v.what == verdict_msg::kind::begin || v.what > verdict_msg::kind::end) {
        refuse("a verdict of a kind that no target gives");
    }
    if (v.what == verdict_msg::kind::verdict && v.token < 0) {
        refuse("a verdict without a token");
    }
    if (!within<int>(v.n_ahead, 0, 1024) || !within<int>(v.n_branch, 1, 1024) || !within<int>(v.n_want, 0, 1024) ||
        !within<int>(v.branch_price, 1, 30000) || !within<int>(v.least_path, 0, 1000) ||
        !within<int>(v.sharpness, -sharpness::most_order, sharpness::most_order)) {
        refuse("impossible orders");
    }
}

void check_text(const text_params & t) {
    if (t.id >> 63 == 0) {
        refuse("a text with an id that is none");
    }
    if (t.prompt.empty() || t.prompt.size() > n_text_most ||
        !within<size_t>(size_t(t.n_generated), 0, t.prompt.size())) {
        refuse("a prompt of " + std::to_string(t.prompt.size()) + " tokens");
    }
    for (const token_id token : t.prompt) {
        if (token < 0) {
            refuse("a negative token");
        }
    }
    if (t.n_predict < -1 || !within(t.n_logprobs, -1, 100000) || t.stop.size() > n_stops_most) {
        refuse("impossible limits");
    }
    for (const std::string & s : t.stop) {
        if (s.empty() || s.size() > n_stop_bytes) {
            refuse("an impossible stop string");
        }
    }
    check_sampling(t.sampling);
    check_plan(t.plan);
}

} // namespace duo
