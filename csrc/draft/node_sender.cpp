#include "node_sender.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "tree/sharpness.h"

namespace duo {

namespace {
constexpr size_t n_children_most = 8;      // of a node, when several outcomes are prepared
constexpr float  least_child     = -4.2f;  // log of the chance of a child, if its node is right, to be kept (1.5%)
constexpr float  log_of_nothing  = -69.0f; // log(1e-30)
constexpr size_t n_block_most    = 48;     // nodes below the root whose children a block tells

// How likely a child can be that is not among these siblings, which are sorted; logs of chances.
float most_of_others(std::span<const float> logp) {
    double left = 1.0;
    for (const float x : logp) {
        left -= std::exp(double(x));
    }
    const float rest = std::max(float(std::log(std::max(left, 1e-30))), log_of_nothing);
    return logp.empty() ? rest : std::min(rest, logp.back());
}
} // namespace

void node_sender::send(draft_step & step) {
    // Texts of several clients: each of them has its own measurements.
    bool first = step.typical;
    for (draft_step::part & p : step.parts()) {
        if (!p.evaluated || p.nodes.empty()) {
            continue;
        }
        try {
            send(step, p, wires_.on_host ? step.typical : std::exchange(first, false));
        } catch (...) {
            fail(*p.text, failure_caught().sentence.c_str());
        }
    }
}

void node_sender::pause(draft_text & text) {
    text.pause();
    wires_.nodes.push({.what = node_msg::kind::pause, .slot = text.slot(), .parent = text.cache().tree().root().id});
}

void node_sender::fail(draft_text & text, const char * why) noexcept {
    const bool cleared = text.cache().clear();
    if (!text.active()) {
        return; // it ended, but its branches could not be given back one by one
    }
    const request & req = text.req();
    try {
        req.draft_error = why;
        req.draft_error += cleared ? "" : "; its cache could not be cleared";
    } catch (...) {
        // there is no memory for the reason; the failure is reported without it
    }
    text.pause();
    wires_.nodes.push({.what = node_msg::kind::failed, .slot = text.slot(), .id = req.id});
    text.end();
}

void node_sender::send(draft_step & step, draft_step::part & p, bool tells_time) {
    path_ = p.text->cache().tokens();
    for (size_t j = 0; j < p.nodes.size(); ++j) {
        send_children(step, p, p.nodes[j], int32_t(p.row_of(j)), tells_time && j == 0);
    }
    if (p.text->cache().in_blocks()) {
        send_block(step, p);
    }
}

// The root's row has told candidates for several levels, so nodes below it get children without a row of their own.
void node_sender::send_block(draft_step & step, draft_step::part & p) {
    cached_text & text  = p.text->cache();
    const auto    i_row = int32_t(p.row_of(0));
    int32_t       i     = p.text->frontier().next_in_block();
    for (size_t n = 0; n < n_block_most && i >= 0; ++n) { // best first
        text.tree().mark_expanded(i, text.trunk().branch());
        send_children(step, p, i, i_row, false);
        i = p.text->frontier().next_in_block();
    }
    p.text->pause(); // nothing more can be had before the next verdict
    wires_.nodes.push_quiet({.what = node_msg::kind::pause, .slot = p.text->slot(), .parent = text.tree().root().id});
}

// Sends the children of a node, whose row was evaluated: best first, the first one always. The others are
// kept if their own chance is high enough, whatever the chance of the path: once the text has come to this node, only
// theirs counts, and they cannot be had later. tells_time: the first child tells the step's duration.
void node_sender::send_children(draft_step & step, draft_step::part & p, int32_t i_node, int32_t i_row,
                                bool tells_time) {
    draft_text &    text   = *p.text;
    token_tree &    tree   = text.cache().tree();
    const request & req    = text.req();
    const int32_t   wanted = text.frontier().n_children_wanted(i_node);
    const bool      draws  = acceptance::draws(req.sampling);
    step.depth             = std::max(step.depth, tree.at(i_node).depth + 1);
    path_.resize(text.cache().tokens().size());
    tree.path_to(i_node, path_);
    const size_t n_most = std::max(text.orders().n_branch > 1 ? n_children_most : 1, size_t(wanted));
    if (draws) {
        draw_children(text, i_node, i_row, n_most);
    } else {
        children_.resize(n_most);
        children_.resize(size_t(model_.candidates(i_row, req.sampling, path_, children_)));
    }

    const int64_t      rows_us = tells_time ? step.t_rows - step.t0 : 0;
    const int32_t      n_all   = step.n_nodes * step.rows[size_t(i_row)].n_levels;
    const draft_head * head    = text.cache().head();
    const node_id      parent  = tree.at(i_node).id;
    node_msg           msg{.slot    = text.slot(),
                           .parent  = parent,
                           .n_rows  = int16_t(step.n_nodes),
                           .age     = head == nullptr ? no_age : head->age_below(parent),
                           .step_us = tells_time ? float(rows_us + (now_us() - step.t_rows) * n_all) : 0.0f,
                           .beside  = rows_us <= 0 ? 0.0f : float(step.beside_us) / float(rows_us)};
    if (!draws) {
        keep_likely(req.plan.p_min, wanted);
    }
    estimate(text.orders().power);
    if (text.cache().in_blocks() && !draws) {
        // Older blocks knew less of the text: what they alone proposed is no guess any more.
        lower_others(text, i_node, log_of_nothing, log_of_nothing, no_age);
    }
    for (size_t i = 0; i < children_.size(); ++i) {
        const candidate & c     = children_[i];
        const int32_t     there = tree.child(i_node, c.token);
        msg.guess               = there < 0;
        msg.id                  = msg.guess ? ids_.next() : tree.at(there).id;
        if (msg.guess) {
            tree.insert(msg.id, parent, c.token, estimates_[i]);
        } else {
            tree.revise(there, estimates_[i]); // a head evaluates a root again, and knows better now
        }
        msg.token = c.token;
        msg.logp  = said_[i];
        msg.rank  = int16_t(i);
        wires_.nodes.push_quiet(msg);
        msg.step_us = 0.0f;
        p.n_made += msg.guess ? 1 : 0;
    }
    if (msg.age != no_age && !draws) {
        // The node was evaluated again. Its other children are no likelier than the last of these, nor than what these
        // leave.
        lower_others(text, i_node, most_of_others(said_), most_of_others(estimates_), msg.age);
    }
}

// Of children_, which are sorted: the first one, those that are wanted, and the likely ones; with at least p_min each.
void node_sender::keep_likely(float p_min, int32_t n_wanted) {
    const float least = std::log(std::max(p_min, 1e-30f));
    size_t      n     = 0;
    for (; n < children_.size(); ++n) {
        const float logp = std::max(children_[n].logp, log_of_nothing);
        if (logp < least || (n > 0 && int32_t(n) >= n_wanted && logp < least_child)) {
            break;
        }
    }
    children_.resize(n);
}

// The draft's own nodes have estimates to the power that verdicts suggest; the target is told what the model says.
void node_sender::estimate(double power) {
    said_.clear();
    for (const candidate & c : children_) {
        said_.push_back(std::max(c.logp, log_of_nothing));
    }
    estimates_.resize(said_.size());
    sharpness::apply(power, said_, estimates_);
}

// Children of a node that are not proposed again become no likelier than this: as the target is told, and as the tree
// has it.
void node_sender::lower_others(draft_text & text, int32_t i_node, float said, float estimate, int16_t age) {
    for (int32_t i = text.cache().tree().first_child(i_node); i >= 0; i = text.cache().tree().at(i).next) {
        const token_tree::node & nd = text.cache().tree().at(i);
        const bool               again =
            std::any_of(children_.begin(), children_.end(), [&nd](const candidate & c) { return c.token == nd.token; });
        if (!again && nd.logp > estimate) {
            wires_.nodes.push_quiet({.guess  = false,
                                     .slot   = text.slot(),
                                     .id     = nd.id,
                                     .parent = text.cache().tree().at(i_node).id,
                                     .token  = nd.token,
                                     .logp   = said,
                                     .age    = age});
            text.cache().tree().revise(i, estimate);
        }
    }
}

// A node's children are drawn once. Draws must be sent whatever they are: the target would choose wrongly if it were
// told the probable ones only. What they were drawn from goes before them.
void node_sender::draw_children(draft_text & text, int32_t i_node, int32_t i_row, size_t n_most) {
    children_.clear();
    if (text.cache().tree().first_child(i_node) >= 0) {
        return;
    }
    model_.chances(i_row, text.req().sampling, path_, chances_);
    acceptance_.draw(text.req().sampling, path_, chances_, n_most, children_);
    for (const candidate & c : chances_) {
        wires_.nodes.push_quiet({.what   = node_msg::kind::share,
                                 .slot   = text.slot(),
                                 .parent = text.cache().tree().at(i_node).id,
                                 .token  = c.token,
                                 .logp   = std::max(c.logp, log_of_nothing)});
    }
}

} // namespace duo
