#include "message_check.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "base/error.h"
#include "model/grammar_limits.h"
#include "tree/sharpness.h"
#include "tree/tree_shape.h"
#include "wires/message_limits.h"

namespace duo {

namespace {

constexpr float   longest_step_us = 1e9f; // a host may have been paused; see client_drafts for what is believed
constexpr int32_t n_row_most      = 1024; // more rows than any peer's batch has

[[noreturn]] void refuse(const std::string & what) {
    throw error(error_kind::peer_lost, "the other side sent " + what + "; use the same version of duo on both sides");
}

template <typename T> bool within(T x, T least, T most) {
    return x >= least && x <= most; // false for NaN
}

// Floats travel as 32 bits, so rounding may exceed a limit.
template <typename T> bool allowed(T x, double least, double most) {
    const double slack = std::is_floating_point_v<T> ? 1e-6 : 0.0;
    return within(double(x), least - slack * std::abs(least), most + slack * std::abs(most));
}

void check_sampling(const sampling_params & s) {
    each_sampling_limit([&s](const char * name, auto member, double least, double most) {
        if (!allowed(s.*member, least, most)) {
            refuse(std::string("an impossible value of ") + name);
        }
    });
    if (s.logit_bias.size() > n_bias_most) {
        refuse("too many biases");
    }
    if (s.accept > accept_rule::top_n) {
        refuse("an impossible rule of acceptance");
    }
    if (s.dry_sequence_breakers.size() > n_breakers_most) {
        refuse("too many sequence breakers");
    }
    for (const std::string & b : s.dry_sequence_breakers) {
        if (b.empty() || b.size() > n_breaker_bytes_most) {
            refuse("an impossible sequence breaker");
        }
    }
    if (s.grammar.find('\0') != std::string::npos || s.grammar.size() > n_grammar_bytes_most ||
        !grammar_too_large(s.grammar).empty()) {
        refuse("an impossible grammar");
    }
    for (const auto & [token, bias] : s.logit_bias) {
        if (token < 0 || !(std::abs(bias) <= 1.1f * bias_most || bias == -std::numeric_limits<float>::infinity())) {
            refuse("an impossible logit bias");
        }
    }
}

void check_plan(const plan_params & p) {
    if (p.mode > run_mode::async || p.use > tree_use::dynamic || p.ngram.kind > ngram_kind::mod) {
        refuse("an impossible plan");
    }
    each_plan_limit([&p](const char * name, auto get, double least, double most) {
        if (!allowed(get(p), least, most)) {
            refuse(std::string("an impossible value of ") + name);
        }
    });
    if (p.tree.size() > n_tree_most) {
        refuse("an impossible tree");
    }
    for (const auto & path : p.tree) {
        if (path.empty() || path.size() > n_tree_most ||
            !std::all_of(path.begin(), path.end(), [](int32_t rank) { return within(rank, 0, n_rank_most); })) {
            refuse("an impossible tree");
        }
    }
    if (tree_shape(p.tree).n_nodes() > int32_t(n_tree_most)) {
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
    if (t.n_predict < -1 || !within(t.n_logprobs, -1, n_logprobs_most) || t.stop.size() > n_stops_most) {
        refuse("impossible limits");
    }
    for (const std::string & s : t.stop) {
        if (s.empty() || s.size() > n_stop_bytes_most) {
            refuse("an impossible stop string");
        }
    }
    check_sampling(t.sampling);
    check_plan(t.plan);
}

} // namespace duo
