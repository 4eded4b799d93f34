#include "step_evaluator.h"

#include <algorithm>

#include "next_picture.h"

namespace duo {

namespace {
constexpr size_t n_piece = 64; // rows of a text that is read beside others that are drafted

// The step was stopped: none of its rows is cached.
void give_back(draft_step & step) {
    for (const draft_step::part & p : step.parts()) {
        for (size_t j = 0; j < p.branches.size(); ++j) {
            p.text->cache().trunk().give_back(p.branches[j], step.rows[p.i_row + j].pos);
        }
    }
}
} // namespace

bool step_evaluator::evaluate(draft_step & step, const std::atomic<bool> & stop) {
    set_rows(step);
    if (step.rows.empty()) {
        return false;
    }
    set_states(step);
    if (model_.decode(step.rows, stop) == decode_status::stopped) {
        give_back(step);
        return false;
    }
    mark_evaluated(step);
    return step.n_nodes > 0;
}

int32_t step_evaluator::read(draft_text & text) {
    draft_step       step;
    draft_step::part root{.text = &text, .nodes = {0}};
    step.add(root);
    draft_step::part & p = step.parts().front();
    add_rows_of_text(step, p, size_t(model_.facts().n_batch));
    step.rows.back().output   = false;
    step.rows.back().n_levels = 1;
    set_states(step);
    model_.decode(step.rows, never_stop);
    text.cache().on_text_rows(int32_t(p.n_rows));
    return int32_t(p.n_rows);
}

// One batch: the nodes of all texts, and what is missing of texts whose root is evaluated. A picture has a step for
// itself (node_choice).
void step_evaluator::set_rows(draft_step & step) const {
    bool drafted = false;
    for (draft_step::part & p : step.parts()) {
        if (!p.reads()) {
            add_rows_of_nodes(step, p);
            drafted = true;
        }
    }
    for (draft_step::part & p : step.parts()) {
        if (p.reads()) {
            const size_t n_left = size_t(model_.facts().n_batch) - step.rows.size();
            add_rows_of_text(step, p, drafted ? std::min(n_left, n_piece) : n_left);
        }
    }
}

void step_evaluator::add_rows_of_text(draft_step & step, draft_step::part & p, size_t n_most) const {
    cached_text &       text   = p.text->cache();
    const auto &        tokens = text.tokens();
    const draft_trunk & trunk  = text.trunk();
    p.i_row                    = step.rows.size();
    const picture_span * seen  = next_picture(text);
    p.n_rows                   = size_t(one_kind(text, int32_t(std::min(size_t(text.n_readable()), n_most))));
    p.evaluated                = p.n_rows == size_t(text.n_missing());
    step.typical               = step.typical && p.n_rows <= 2 && seen == nullptr;
    for (int32_t row = trunk.n_rows(); row < trunk.n_rows() + int32_t(p.n_rows); ++row) {
        const int32_t pos = trunk.window().pos_of(row);
        step.rows.push_back({.token   = tokens[size_t(pos)],
                             .pos     = row,
                             .branch  = trunk.branch(),
                             .output  = pos + 1 == int32_t(tokens.size()),
                             .picture = seen == nullptr ? nullptr : seen->content.get()});
    }
    if (p.evaluated && text.in_blocks()) {
        step.rows.back().n_levels = p.text->frontier().begin_block();
    }
}

void step_evaluator::add_rows_of_nodes(draft_step & step, draft_step::part & p) const {
    cached_text &      text   = p.text->cache();
    const token_tree & tree   = text.tree();
    const draft_head * head   = text.head();
    size_t             n_kept = 0;
    p.i_row                   = step.rows.size();
    for (const int32_t i : p.nodes) {
        const int32_t b = text.trunk().take(tree, i, text.pos_of(i));
        if (b >= 0) {
            step.rows.push_back({.token  = tree.at(i).token,
                                 .pos    = text.row_of(i),
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
void step_evaluator::set_states(draft_step & step) {
    if (model_.facts().n_inputs == 0) {
        return;
    }
    inputs_.clear();
    for (const draft_step::part & p : step.parts()) {
        if (p.reads()) {
            p.text->cache().head()->append(p.text->cache().trunk().n_text(), int32_t(p.n_rows), inputs_);
        }
    }
    states_.resize(inputs_.size() / size_t(model_.facts().n_inputs) * size_t(model_.facts().n_state));
    if (!inputs_.empty()) {
        model_.states().encode(inputs_, states_);
    }
    const float * next = states_.data();
    for (const draft_step::part & p : step.parts()) {
        for (size_t j = 0; p.reads() && j < p.n_rows; ++j, next += model_.facts().n_state) {
            step.rows[p.i_row + j].state = next;
        }
    }
}

void step_evaluator::mark_evaluated(draft_step & step) {
    for (draft_step::part & p : step.parts()) {
        cached_text & text = p.text->cache();
        if (p.reads()) {
            text.on_text_rows(int32_t(p.n_rows));
        }
        if (!p.evaluated) {
            continue;
        }
        step.n_nodes += int32_t(p.nodes.size());
        for (size_t j = 0; j < p.nodes.size(); ++j) {
            text.tree().mark_expanded(p.nodes[j], p.reads() ? text.trunk().branch() : p.branches[j]);
        }
        if (text.head() != nullptr && !text.in_blocks()) {
            keep_states(p);
        }
    }
}

// The states after a part's nodes, from which a head makes their children's rows.
void step_evaluator::keep_states(const draft_step::part & p) {
    cached_text & text = p.text->cache();
    state_.resize(size_t(model_.facts().n_state));
    for (size_t j = 0; j < p.nodes.size(); ++j) {
        model_.states().state(int32_t(p.row_of(j)), state_);
        text.head()->keep(text.tree(), p.nodes[j], state_);
    }
}

} // namespace duo
