// One step of the draft: evaluate the chosen nodes of all texts (draft_choice.cpp) in one batch, send their best
// children. The loop around it is in draft_worker.cpp.
#include <algorithm>
#include <cmath>
#include <utility>

#include "draft_worker.h"

namespace duo {

namespace {
constexpr size_t n_children_most = 8;      // of a node, when several outcomes are prepared
constexpr float  least_child     = -4.2f;  // the same for a child of a node that is right (1.5%)
constexpr float  log_of_nothing  = -69.0f; // log(1e-30)
constexpr size_t n_piece         = 64;     // rows of a text that is read beside others that are drafted
constexpr size_t n_block_most    = 48;     // nodes below the root whose children a block tells
} // namespace

void draft_worker::step() {
    if (!choose()) {
        return;
    }
    step_time t{.t0 = now_us()};
    t.busy0 = wires_.verify_busy.at(t.t0);
    wires_.draft_busy.begin(t.t0);
    bool done = false;
    try {
        set_rows();
        done = evaluate();
    } catch (...) {
        wires_.draft_busy.end(now_us());
        throw;
    }
    int32_t n_made = 0;
    int32_t depth  = 0;
    if (done) {
        t.t_rows = now_us();
        // A step on a part of the cores counts as beside the target, whatever the target did.
        const bool split = parts_.front().text->wanted().n_threads > 0;
        t.beside_us      = split ? t.t_rows - t.t0 : wires_.verify_busy.at(t.t_rows) - t.busy0;
        // Texts of several clients: each of them has its own measurements.
        bool first = typical_;
        for (size_t i = 0; i < n_parts_; ++i) {
            part & p = parts_[i];
            try {
                path_              = p.text->tokens();
                first              = wires_.on_host ? typical_ : first;
                const size_t i_row = p.i_row + p.n_rows - p.nodes.size();
                for (size_t j = 0; p.evaluated && j < p.nodes.size(); ++j) {
                    const step_time * told = std::exchange(first, false) ? &t : nullptr;
                    depth                  = std::max(depth, p.text->tree().at(p.nodes[j]).depth + 1);
                    p.n_made += send_children(*p.text, p.nodes[j], int32_t(i_row + j), told);
                }
                if (p.evaluated && p.text->in_blocks()) {
                    depth = std::max(depth, send_block(p, int32_t(i_row)));
                }
            } catch (const std::exception & e) {
                fail(*p.text, e.what()); // the other texts go on
            }
            n_made += p.n_made;
        }
    }
    for (size_t i = 0; i < n_parts_; ++i) {
        if (parts_[i].text->active() && parts_[i].n_rows == 0 && parts_[i].nodes.empty()) {
            pause(*parts_[i].text); // the cache has no branch for any of its nodes
        }
    }
    wires_.nodes.wake(); // once for all of a step
    const int64_t t1 = now_us();
    wires_.draft_busy.end(t1);
    if (!rows_.empty()) {
        report(t.t0, t1, wires_.verify_busy.at(t1) - t.busy0, n_made, depth);
    }
}

// One batch: the nodes of all texts, and what is missing of texts whose root is evaluated.
void draft_worker::set_rows() {
    rows_.clear();
    typical_     = true;
    bool drafted = false;
    for (size_t i = 0; i < n_parts_; ++i) {
        if (!parts_[i].reads()) {
            set_rows_of_nodes(parts_[i]);
            drafted = true;
        }
    }
    for (size_t i = 0; i < n_parts_; ++i) {
        if (parts_[i].reads()) {
            const size_t n_left = size_t(model_.n_batch()) - rows_.size();
            set_rows_of_text(parts_[i], drafted ? std::min(n_left, n_piece) : n_left);
        }
    }
}

void draft_worker::set_rows_of_text(part & p, size_t n_most) {
    const auto &        tokens    = p.text->tokens();
    const draft_trunk & trunk     = p.text->trunk();
    const auto          n_missing = size_t(p.text->n_missing());
    p.i_row                       = rows_.size();
    p.n_rows                      = std::min(size_t(p.text->n_readable()), n_most);
    p.evaluated                   = p.n_rows == n_missing;
    typical_                      = typical_ && p.n_rows <= 2;
    for (int32_t pos = trunk.n_text(); pos < trunk.n_text() + int32_t(p.n_rows); ++pos) {
        rows_.push_back({.token  = tokens[size_t(pos)],
                         .pos    = pos,
                         .branch = trunk.branch(),
                         .output = pos + 1 == int32_t(tokens.size())});
    }
    if (p.evaluated && p.text->in_blocks()) {
        rows_.back().n_levels = p.text->begin_block();
    }
}

void draft_worker::set_rows_of_nodes(part & p) {
    const token_tree & tree   = p.text->tree();
    size_t             n_kept = 0;
    p.i_row                   = rows_.size();
    for (const int32_t i : p.nodes) {
        const int32_t b = p.text->trunk().take(tree, i, p.text->pos_of(i));
        if (b >= 0) {
            const draft_head * head = p.text->head();
            rows_.push_back({.token  = tree.at(i).token,
                             .pos    = p.text->pos_of(i),
                             .branch = b,
                             .output = true,
                             .state  = head == nullptr ? nullptr : head->state_of(tree.at(tree.at(i).parent).id)});
            p.branches.push_back(b);
            p.nodes[n_kept++] = i;
        }
    }
    p.nodes.resize(n_kept);
    p.n_rows    = n_kept;
    p.evaluated = true;
}

// A draft head's rows of the texts are made of the target's states.
void draft_worker::set_states() {
    inputs_.clear();
    for (size_t i = 0; i < n_parts_; ++i) {
        const part & p = parts_[i];
        if (p.reads()) {
            p.text->head()->append(p.text->trunk().n_text(), int32_t(p.n_rows), inputs_);
        }
    }
    states_.resize(inputs_.size() / size_t(model_.n_inputs()) * size_t(model_.n_state()));
    if (!inputs_.empty()) {
        model_.encode(inputs_, states_);
    }
    const float * next = states_.data();
    for (size_t i = 0; i < n_parts_; ++i) {
        const part & p = parts_[i];
        for (size_t j = 0; p.reads() && j < p.n_rows; ++j, next += model_.n_state()) {
            rows_[p.i_row + j].state = next;
        }
    }
}

// The states after a part's nodes, from which a head makes their children's rows.
void draft_worker::keep_states(const part & p) {
    state_.resize(size_t(model_.n_state()));
    for (size_t j = 0; j < p.nodes.size(); ++j) {
        model_.state(int32_t(p.i_row + p.n_rows - p.nodes.size() + j), state_);
        p.text->keep_state(p.nodes[j], state_);
    }
}

// What ends the step early. Nodes of one text: a verdict after which none of them is needed. A state that was written
// in part cannot be mended in mid-text.
const std::atomic<bool> & draft_worker::stop_sign() const {
    const part & p = parts_.front();
    if (n_parts_ > 1) {
        return never_stop;
    }
    const bool by_verdict = !p.reads() && !wires_.on_host && model_.undo() == undo_kind::cells;
    return by_verdict ? wires_.useless[size_t(p.text->slot())] : p.text->req().cancelled;
}

// False: nothing was evaluated.
bool draft_worker::evaluate() {
    if (rows_.empty()) {
        return false;
    }
    const bool of_head = model_.n_inputs() > 0;
    if (of_head) {
        set_states();
    }
    if (model_.decode(rows_, stop_sign()) == decode_status::stopped) {
        for (size_t i = 0; i < n_parts_; ++i) {
            const part & p = parts_[i];
            for (size_t j = 0; j < p.branches.size(); ++j) {
                p.text->trunk().give_back(p.branches[j], rows_[p.i_row + j].pos);
            }
        }
        return false;
    }
    n_nodes_ = 0;
    for (size_t i = 0; i < n_parts_; ++i) {
        part & p = parts_[i];
        if (p.reads() && of_head) {
            p.text->on_true_rows(int32_t(p.n_rows));
        } else if (p.reads()) {
            p.text->trunk().grow(int32_t(p.n_rows));
        }
        if (p.evaluated) {
            n_nodes_ += int32_t(p.nodes.size());
            for (size_t j = 0; j < p.nodes.size(); ++j) {
                p.text->mark_expanded(p.nodes[j], p.reads() ? p.text->trunk().branch() : p.branches[j]);
            }
            if (of_head && !p.text->in_blocks()) {
                keep_states(p);
            }
        }
    }
    return n_nodes_ > 0;
}

// The root's row has told candidates for several levels, so nodes below it get children without a row of their own.
// Returns the deepest level of the nodes made.
int32_t draft_worker::send_block(part & p, int32_t i_row) {
    draft_text & text  = *p.text;
    int32_t      depth = 0;
    text.choose_in_block(block_);
    for (size_t n = 0; n < n_block_most && !block_.empty(); ++n) { // best first
        const int32_t i_node = block_.front();
        text.mark_expanded(i_node, text.trunk().branch());
        depth = std::max(depth, text.tree().at(i_node).depth + 1);
        p.n_made += send_children(text, i_node, i_row, nullptr);
        text.choose_in_block(block_);
    }
    pause(text); // nothing more can be had before the next verdict
    return depth;
}

// Sends the children of a node, whose row was evaluated: best first, the first one always. The others are
// kept if their own chance is high enough, whatever the chance of the path: once the text has come to this node, only
// theirs counts, and they cannot be had later. t: the first child tells the step's duration; null: it does not.
int32_t draft_worker::send_children(draft_text & text, int32_t i_node, int32_t i_row, const step_time * t) {
    const request & req    = text.req();
    const int32_t   wanted = text.n_children_wanted(i_node);
    const bool      draws  = acceptance::draws(req.sampling);
    path_.resize(text.tokens().size());
    text.tree().path_to(i_node, path_);
    const size_t n_most = std::max(text.wanted().n_branch > 1 ? n_children_most : 1, size_t(wanted));
    if (draws) {
        draw_children(text, i_node, i_row, n_most);
    } else {
        children_.resize(n_most);
        children_.resize(size_t(model_.candidates(i_row, req.sampling, path_, children_)));
    }

    const int64_t rows  = t == nullptr ? 0 : t->t_rows - t->t0;
    const int32_t n_all = n_nodes_ * rows_[size_t(i_row)].n_levels;
    node_msg      msg{.slot    = text.slot(),
                      .parent  = text.tree().at(i_node).id,
                      .n_rows  = int16_t(n_nodes_),
                      .step_us = t == nullptr ? 0.0f : float(rows + (now_us() - t->t_rows) * n_all),
                      .beside  = rows <= 0 ? 0.0f : float(t->beside_us) / float(rows)};
    const float   p_min  = std::log(std::max(req.plan.p_min, 1e-30f));
    int32_t       n_made = 0;
    if (text.in_blocks() && !draws) {
        drop_children(text, i_node); // older blocks knew less of the text
    }
    for (const candidate & c : children_) {
        const float logp = std::max(c.logp, log_of_nothing);
        if (!draws && (logp < p_min || (n_made > 0 && n_made >= wanted && logp < least_child))) {
            break;
        }
        if (const int32_t there = text.tree().child(i_node, c.token); there >= 0) {
            text.revise(there, logp); // a head evaluates a root again
            if (!text.in_blocks()) {
                continue;
            }
            msg.id    = text.tree().at(there).id;
            msg.guess = false;
        } else {
            msg.id    = ids_.next();
            msg.guess = true;
            text.insert(msg.id, msg.parent, c.token, logp);
        }
        msg.token = c.token;
        msg.logp  = logp;
        msg.rank  = int16_t(n_made);
        wires_.nodes.push_quiet(msg);
        msg.step_us = 0.0f;
        ++n_made;
    }
    return n_made;
}

// What a block does not propose again is no guess any more.
void draft_worker::drop_children(draft_text & text, int32_t i_node) {
    for (int32_t i = text.tree().first_child(i_node); i >= 0; i = text.tree().at(i).next) {
        const token_tree::node & nd = text.tree().at(i);
        const bool               proposed =
            std::any_of(children_.begin(), children_.end(), [&nd](const candidate & c) { return c.token == nd.token; });
        if (!proposed && nd.logp > log_of_nothing) {
            wires_.nodes.push_quiet({.guess  = false,
                                     .slot   = text.slot(),
                                     .id     = nd.id,
                                     .parent = text.tree().at(i_node).id,
                                     .token  = nd.token,
                                     .logp   = log_of_nothing});
            text.revise(i, log_of_nothing);
        }
    }
}

// A node's children are drawn once. Draws must be sent whatever they are: the target would choose wrongly if it were
// told the probable ones only. What they were drawn from goes before them.
void draft_worker::draw_children(const draft_text & text, int32_t i_node, int32_t i_row, size_t n_most) {
    children_.clear();
    if (text.tree().first_child(i_node) >= 0) {
        return;
    }
    model_.chances(i_row, text.req().sampling, path_, chances_);
    acceptance_.draw(text.req().sampling, path_, chances_, n_most, children_);
    for (const candidate & c : chances_) {
        wires_.nodes.push_quiet({.what   = node_msg::kind::share,
                                 .slot   = text.slot(),
                                 .parent = text.tree().at(i_node).id,
                                 .token  = c.token,
                                 .logp   = std::max(c.logp, log_of_nothing)});
    }
}

void draft_worker::report(int64_t t0, int64_t t1, int64_t hidden_us, int32_t n_made, int32_t depth) {
    if (wires_.tracing) {
        wires_.draft_trace.try_push({.what      = typical_ ? trace_event::kind::draft : trace_event::kind::prompt,
                                     .slot      = parts_.front().text->slot(),
                                     .n_rows    = int32_t(rows_.size()),
                                     .n_drafted = n_made,
                                     .depth     = depth,
                                     .t0_us     = t0,
                                     .t1_us     = t1});
    }
    const auto n = int64_t(n_parts_); // each text has its share of the step's time
    for (size_t i = 0; i < n_parts_; ++i) {
        if (parts_[i].text->active()) {
            parts_[i].text->req().draft->count(1, parts_[i].n_made, (t1 - t0) / n, hidden_us / n);
        }
    }
}

} // namespace duo
