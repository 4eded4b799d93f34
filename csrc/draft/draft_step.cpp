// One step of the draft: evaluate the chosen nodes of all texts (draft_choice.cpp) in one batch, send their best
// children (draft_send.cpp). The loop around it is in draft_worker.cpp.
#include <algorithm>
#include <utility>

#include "base/error.h"
#include "draft_worker.h"

namespace duo {

namespace {
constexpr size_t n_piece = 64; // rows of a text that is read beside others that are drafted
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
            } catch (...) {
                fail(*p.text, failure_caught().sentence.c_str()); // the other texts go on
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
    for (int32_t row = trunk.n_rows(); row < trunk.n_rows() + int32_t(p.n_rows); ++row) {
        const int32_t pos = trunk.window().pos_of(row);
        rows_.push_back({.token  = tokens[size_t(pos)],
                         .pos    = row,
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
                             .pos    = p.text->row_of(i),
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
