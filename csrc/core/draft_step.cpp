// One step of the draft: choose the frontier nodes most likely to be needed, evaluate them in one batch, send their
// best children. The loop around it is in draft_worker.cpp.
#include <algorithm>
#include <cmath>

#include "draft_worker.h"

namespace duo {

namespace {
constexpr size_t n_children_most = 8;      // of a node, when several outcomes are prepared
constexpr float  least_child     = -4.2f;  // the same for a child of a node that is right (1.5%)
constexpr float  log_of_nothing  = -69.0f; // log(1e-30)
} // namespace

void draft_worker::step() {
    text_.choose(batch_);
    if (batch_.empty()) {
        pause();
        return;
    }
    step_time t{.t0 = now_us()};
    t.busy0 = wires_.verify_busy.at(t.t0);
    wires_.draft_busy.begin(t.t0);
    evaluation done = evaluation::unfinished;
    try {
        done = evaluate();
    } catch (...) {
        wires_.draft_busy.end(now_us());
        throw;
    }
    if (done == evaluation::no_branch) {
        wires_.draft_busy.end(now_us());
        pause();
        return;
    }
    int32_t n_made = 0;
    int32_t depth  = 0;
    if (done == evaluation::ready) {
        const auto n       = int32_t(batch_.size());
        const auto i_first = int32_t(rows_.size()) - n;
        t.t_rows           = now_us();
        // A step on a part of the cores counts as beside the target, whatever the target did.
        t.beside_us = text_.wanted().n_threads > 0 ? t.t_rows - t.t0 : wires_.verify_busy.at(t.t_rows) - t.busy0;
        path_       = text_.tokens();
        for (int32_t j = 0; j < n; ++j) {
            depth = std::max(depth, text_.tree().at(batch_[size_t(j)]).depth + 1);
            n_made += send_children(batch_[size_t(j)], i_first + j, j == 0 && typical_ ? &t : nullptr);
        }
    }
    wires_.nodes.wake(); // once for all of a step
    const int64_t t1 = now_us();
    wires_.draft_busy.end(t1);
    report(t.t0, t1, wires_.verify_busy.at(t1) - t.busy0, n_made, depth);
}

// One batch: what is missing of the text and the root, or the nodes of batch_.
draft_worker::evaluation draft_worker::evaluate() {
    rows_.clear();
    branches_.clear();
    return batch_.front() == 0 ? evaluate_text() : evaluate_nodes();
}

draft_worker::evaluation draft_worker::evaluate_text() {
    const auto &  tokens    = text_.tokens();
    draft_trunk & trunk     = text_.trunk();
    const auto    n_missing = int32_t(tokens.size()) - trunk.n_text();
    const auto    n         = std::min(n_missing, model_.n_batch());
    for (int32_t pos = trunk.n_text(); pos < trunk.n_text() + n; ++pos) {
        rows_.push_back({.token  = tokens[size_t(pos)],
                         .pos    = pos,
                         .branch = trunk.branch(),
                         .output = pos + 1 == int32_t(tokens.size())});
    }
    if (model_.decode(rows_, text_.req().cancelled) == decode_status::stopped) {
        return evaluation::unfinished;
    }
    trunk.grow(n);
    typical_ = n <= 2;
    if (n < n_missing) {
        return evaluation::unfinished;
    }
    text_.mark_expanded(0, trunk.branch());
    return evaluation::ready;
}

draft_worker::evaluation draft_worker::evaluate_nodes() {
    const token_tree & tree   = text_.tree();
    size_t             n_kept = 0;
    for (const int32_t i : batch_) {
        const int32_t b = text_.trunk().take(tree, i, text_.pos_of(i));
        if (b >= 0) {
            rows_.push_back({.token = tree.at(i).token, .pos = text_.pos_of(i), .branch = b, .output = true});
            branches_.push_back(b);
            batch_[n_kept++] = i;
        }
    }
    batch_.resize(n_kept);
    if (batch_.empty()) {
        return evaluation::no_branch;
    }
    if (model_.decode(rows_, text_.req().cancelled) == decode_status::stopped) {
        for (const row & r : rows_) {
            text_.trunk().give_back(r.branch, r.pos);
        }
        return evaluation::unfinished;
    }
    for (size_t j = 0; j < n_kept; ++j) {
        text_.mark_expanded(batch_[j], branches_[j]);
    }
    typical_ = true;
    return evaluation::ready;
}

// Sends the children of a node whose row was evaluated: best first, the first one always. The others are kept if their
// own chance is high enough, whatever the chance of the path: once the text has come to this node, only theirs counts,
// and they cannot be had later. t: the first child tells the step's duration; null: it does not.
int32_t draft_worker::send_children(int32_t i_node, int32_t i_row, const step_time * t) {
    const request & req    = text_.req();
    const int32_t   wanted = text_.n_children_wanted(i_node);
    path_.resize(text_.tokens().size());
    text_.tree().path_to(i_node, path_);
    children_.resize(std::max(text_.wanted().n_branch > 1 ? n_children_most : 1, size_t(wanted)));
    children_.resize(size_t(model_.candidates(i_row, req.sampling, path_, children_)));

    const auto             n      = int64_t(batch_.size());
    const int64_t          rows   = t == nullptr ? 0 : t->t_rows - t->t0;
    const auto             us     = t == nullptr ? 0.0f : float(rows + (now_us() - t->t_rows) * n);
    const auto             beside = rows <= 0 ? 0.0f : float(t->beside_us) / float(rows);
    const token_tree::node up     = text_.tree().at(i_node);
    const float            p_min  = std::log(std::max(req.plan.p_min, 1e-30f));
    int32_t                n_made = 0;
    for (const candidate & c : children_) {
        const float logp = std::max(c.logp, log_of_nothing);
        if (logp < p_min || (n_made > 0 && n_made >= wanted && logp < least_child)) {
            break;
        }
        const node_id id = ids_.next();
        text_.insert(id, up.id, c.token, logp);
        wires_.nodes.push_quiet({.slot    = req.slot,
                                 .id      = id,
                                 .parent  = up.id,
                                 .token   = c.token,
                                 .logp    = logp,
                                 .rank    = int16_t(n_made),
                                 .n_rows  = int16_t(n),
                                 .step_us = n_made == 0 ? us : 0.0f,
                                 .beside  = beside});
        ++n_made;
    }
    return n_made;
}

void draft_worker::report(int64_t t0, int64_t t1, int64_t hidden_us, int32_t n_made, int32_t depth) {
    if (wires_.tracing) {
        wires_.draft_trace.try_push({.what      = typical_ ? trace_event::kind::draft : trace_event::kind::prompt,
                                     .slot      = text_.req().slot,
                                     .n_rows    = int32_t(rows_.size()),
                                     .n_drafted = n_made,
                                     .depth     = depth,
                                     .t0_us     = t0,
                                     .t1_us     = t1});
    }
    text_.req().draft->count(1, n_made, t1 - t0, hidden_us);
}

} // namespace duo
