// What the draft tells the target after a step: the children of the nodes that were evaluated.
#include <algorithm>
#include <cmath>

#include "draft_worker.h"
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
    text.pause(); // nothing more can be had before the next verdict
    wires_.nodes.push_quiet({.what = node_msg::kind::pause, .slot = text.slot(), .parent = text.tree().root().id});
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
                      .age     = text.age_below(i_node),
                      .step_us = t == nullptr ? 0.0f : float(rows + (now_us() - t->t_rows) * n_all),
                      .beside  = rows <= 0 ? 0.0f : float(t->beside_us) / float(rows)};
    int32_t       n_made = 0;
    if (!draws) {
        keep_likely(req.plan.p_min, wanted);
    }
    estimate(text.wanted().power);
    if (text.in_blocks() && !draws) {
        // Older blocks knew less of the text: what they alone proposed is no guess any more.
        lower_others(text, i_node, log_of_nothing, log_of_nothing, no_age);
    }
    for (size_t i = 0; i < children_.size(); ++i) {
        const candidate & c = children_[i];
        if (const int32_t there = text.tree().child(i_node, c.token); there >= 0) {
            text.revise(there, estimates_[i]); // a head evaluates a root again, and knows better now
            msg.id    = text.tree().at(there).id;
            msg.guess = false;
        } else {
            msg.id    = ids_.next();
            msg.guess = true;
            text.insert(msg.id, msg.parent, c.token, estimates_[i]);
        }
        msg.token = c.token;
        msg.logp  = said_[i];
        msg.rank  = int16_t(i);
        wires_.nodes.push_quiet(msg);
        msg.step_us = 0.0f;
        n_made += msg.guess ? 1 : 0;
    }
    if (msg.age != no_age && !draws) {
        // The node was evaluated again. Its other children are no likelier than the last of these, nor than what these
        // leave.
        lower_others(text, i_node, most_of_others(said_), most_of_others(estimates_), msg.age);
    }
    return n_made;
}

// Of children_, which are sorted: the first one, those that are wanted, and the likely ones; with at least p_min each.
void draft_worker::keep_likely(float p_min, int32_t n_wanted) {
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
void draft_worker::estimate(double power) {
    said_.clear();
    for (const candidate & c : children_) {
        said_.push_back(std::max(c.logp, log_of_nothing));
    }
    estimates_.resize(said_.size());
    sharpness::apply(power, said_, estimates_);
}

// Children of a node that are not proposed again become no likelier than this: as the target is told, and as the tree
// has it.
void draft_worker::lower_others(draft_text & text, int32_t i_node, float said, float estimate, int16_t age) {
    for (int32_t i = text.tree().first_child(i_node); i >= 0; i = text.tree().at(i).next) {
        const token_tree::node & nd = text.tree().at(i);
        const bool               again =
            std::any_of(children_.begin(), children_.end(), [&nd](const candidate & c) { return c.token == nd.token; });
        if (!again && nd.logp > estimate) {
            wires_.nodes.push_quiet({.guess  = false,
                                     .slot   = text.slot(),
                                     .id     = nd.id,
                                     .parent = text.tree().at(i_node).id,
                                     .token  = nd.token,
                                     .logp   = said,
                                     .age    = age});
            text.revise(i, estimate);
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

} // namespace duo
