// The pass itself: verify, walk, emit. The loop around it is in verify_worker.cpp.
#include <algorithm>

#include "../error.h"
#include "verify_worker.h"

namespace duo {

namespace {
constexpr int32_t n_telling = 16; // a prompt with fewer rows says too little about the time of a row
} // namespace

// One target pass: what is left of the prompt, what was accepted beside the best path, the root, and the chosen nodes.
void verify_worker::verify(const plan & p) {
    const pass_tree & tree       = text_.tree();
    const auto        n_before   = text_.tokens().size();
    const auto        i_root     = int32_t(n_before - 1 - cached_.size());
    const auto        n_branches = tree.n_branches();
    set_rows();
    const int64_t t_forks = now_us();
    for (int32_t b = 1; b < n_branches; ++b) {
        model_.fork(0, b, int32_t(cached_.size()));
    }
    const int32_t n_threads = text_.drafting() ? planner_.threads().target : 0;
    model_.use_threads(n_threads);

    int64_t             t0     = 0;
    int64_t             t1     = 0;
    const decode_status status = timed_decode(t0, t1);
    // The walk needs only the candidates, so side branches are dropped before it.
    for (int32_t b = 1; b < n_branches; ++b) {
        model_.rollback(b, 0);
    }
    if (status == decode_status::stopped) {
        return;
    }
    if (text_.stats().n_passes == 0) {
        on_prompt(t1);
    } else if (t1 > t0) {
        // A pass on a part of the cores counts as beside the draft, whatever the draft did.
        const int64_t beside = n_threads > 0 ? t1 - t0 : wires_.draft_busy.at(t1) - wires_.draft_busy.at(t0);
        // Making and dropping a tree's branches is outside the pass, but it is part of its cost.
        const int64_t branches = n_branches > 1 ? t0 - t_forks + now_us() - t1 : 0;
        planner_.profile().on_pass(int32_t(rows_.size()), t1 - t0 + branches, double(beside) / double(t1 - t0));
    }
    cached_ = text_.tokens();
    for (size_t i = 0; i < tree.rows().size() && tree.rows()[i].branch == 0; ++i) {
        cached_.push_back(tree.at_row(int32_t(i)).token);
    }

    // Takes what the draft has prepared meanwhile, so that a hit is recognised and its subtree can be planned with.
    take_nodes();
    const verify_stats before        = text_.stats();
    const int32_t      depth         = tree.depth();
    const stance       stance_before = planner_.stance_now();
    walk(i_root, p);
    trace_pass(p, before, stance_before, depth, t0, t1);
    if (text_.finish() == finish_reason::none) {
        trim_cache(n_before);
    }
}

void verify_worker::set_rows() {
    const pass_tree & tree     = text_.tree();
    const auto &      tokens   = text_.tokens();
    const auto        n_before = tokens.size();
    rows_.clear();
    for (size_t pos = cached_.size(); pos < n_before; ++pos) {
        rows_.push_back({.token      = tokens[pos],
                         .pos        = int32_t(pos),
                         .n_branches = tree.n_branches(),
                         .output     = pos + 1 == n_before});
    }
    for (const auto & r : tree.rows()) {
        const auto & nd = tree.nodes()[size_t(r.i_node)];
        rows_.push_back({.token      = nd.token,
                         .pos        = int32_t(n_before) - 1 + nd.depth,
                         .branch     = r.branch,
                         .n_branches = r.n_branches,
                         .output     = true});
    }
}

void verify_worker::trace_pass(const plan & p, const verify_stats & before, stance stance_before, int32_t depth,
                               int64_t t0, int64_t t1) {
    if (!wires_.tracing) {
        return;
    }
    const verify_stats & st = text_.stats();
    wires_.verify_trace.try_push({.what       = trace_event::kind::verify,
                                  .hit        = st.n_hits > before.n_hits,
                                  .slot       = text_.req().slot,
                                  .n_rows     = int32_t(rows_.size()),
                                  .n_drafted  = int32_t(text_.tree().rows().size()),
                                  .n_accepted = st.n_accepted - before.n_accepted,
                                  .depth      = depth,
                                  .n_branch   = planner_.n_branch(),
                                  .expected   = float(p.expected),
                                  .stance_now = stance_before,
                                  .t0_us      = t0,
                                  .t1_us      = t1});
}

void verify_worker::on_prompt(int64_t t_end) {
    verify_stats & st   = text_.stats();
    st.prompt_us        = t_end - st.t_begin_us;
    const int32_t n_new = st.n_prompt - st.n_prompt_cached;
    if (n_new >= n_telling) {
        row_us_ = double(st.prompt_us) / n_new;
    }
}

// Keeps only the text in the cache. Nodes accepted beside the best path are not kept: their rows come after a gap, and
// attention adds in the order of the cells, so results would not be bit-equal. The next pass evaluates them again.
void verify_worker::trim_cache(size_t n_before) {
    const auto n_on_path = text_.n_accepted_on_best_path();
    const auto n_kept    = n_before + size_t(n_on_path);
    text_.stats().n_side += n_on_path < text_.n_accepted() ? 1 : 0;
    if (n_kept < cached_.size()) {
        if (!model_.rollback(0, int32_t(n_kept))) {
            throw error(error_kind::bad_value, "the target's cache cannot be rolled back; run without a draft");
        }
        cached_.resize(n_kept);
    }
}

// Follows the tree as far as the target agrees, then takes the target's own token; tells the draft.
void verify_worker::walk(int32_t i_first_row, const plan & p) {
    text_.begin_walk(planner_.stance_now());
    for (;;) {
        if (text_.req().hook && text_.cancelled()) {
            return; // a hook may be slow
        }
        const int32_t i_logits = i_first_row + 1 + text_.row();
        const auto    chosen   = choose(i_logits);
        if (!chosen.has_value()) {
            text_.finish(finish_reason::stop);
            return;
        }
        const bool from_draft = text_.step(*chosen, planner_.profile().guesses());
        emit(from_draft, i_logits);
        if (text_.finish() != finish_reason::none) {
            return;
        }
        if (!from_draft) {
            commit(p);
            return;
        }
    }
}

// The target's choice to follow a row. Nothing: the grammar is complete and the text has no end token to choose, or the
// caller's hook ends the text.
std::optional<token_id> verify_worker::choose(int32_t i_row) {
    const request & req    = text_.req();
    const auto      logits = req.hook ? model_.row_logits(i_row) : std::span<float>{};
    struct restorer { // log-probabilities are the model's own
        ~restorer() { std::copy(own.begin(), own.end(), row.begin()); }
        const std::vector<float> & own;
        std::span<float>           row;
    };
    own_logits_.assign(logits.begin(), logits.end());
    const restorer restored{own_logits_, logits};
    if (req.hook && !req.hook->on_row(text_.tokens(), logits)) {
        return std::nullopt;
    }
    candidate chosen;
    if (model_.candidates(i_row, req.sampling, text_.tokens(), std::span(&chosen, 1)) == 1) {
        return chosen.token;
    }
    if (req.sampling.grammar.empty()) {
        throw error(error_kind::bad_value, req.hook ? "the logits_processor left no token that can be chosen"
                                                    : "the filters left no candidate token; allow more tokens");
    }
    return std::nullopt;
}

void verify_worker::commit(const plan & p) {
    const int64_t now = now_us();
    if (const auto us = text_.us_since_verdict(now); us.has_value()) {
        planner_.on_verdict(text_.n_new(), p.expected, *us, text_.drafting());
    }
    verdicts_.clear();
    text_.commit(now, verdicts_);
    for (const verdict_msg & v : verdicts_) {
        tell_draft(v);
    }
    wires_.chunks.wake();
}

// The last committed token on its way to the reader.
void verify_worker::emit(bool from_draft, int32_t i_row) {
    chunk_msg     chunk = text_.make_chunk(from_draft);
    const int32_t n     = text_.req().n_logprobs;
    if (n >= 0) {
        best_.resize(size_t(n));
        chunk.logp = model_.logprobs(i_row, chunk.token, best_);
    }
    wires_.chunks.push_quiet(chunk); // the reader is woken once for all of a pass, after the draft
    if (n >= 0) {
        for (const candidate & c : best_) {
            wires_.chunks.push_quiet(
                {.what = chunk_msg::kind::logprob, .slot = chunk.slot, .token = c.token, .logp = c.logp});
        }
    }
}

} // namespace duo
