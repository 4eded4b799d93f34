// The draft's thread: take verdicts, grow the tree, send the nodes.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "draft_cache.h"
#include "request.h"
#include "token_model.h"
#include "token_tree.h"
#include "tree_shape.h"
#include "wires.h"

namespace duo {

// All members belong to the thread that calls run(). One request at a time; its slot number travels along.
class draft_worker {
  public:
    draft_worker(token_model & model, wires & w) : model_(model), wires_(w), cache_(model) {}

    // Until the verdict channel is closed. Does not throw.
    void run() noexcept;

  private:
    void take_verdicts();
    void apply(const verdict_msg & v);
    void begin(const request & req);
    void take_orders(const verdict_msg & v);
    void end();
    void commit(token_id token);
    void pause();
    void fail(const std::string & why) noexcept;

    struct step_time {
        int64_t t0        = 0;
        int64_t busy0     = 0; // what the target's clock showed then
        int64_t t_rows    = 0; // the rows are evaluated
        int64_t beside_us = 0; // until then, in the target's company
    };

    // A step (draft_step.cpp).
    void                  step();
    void                  choose();
    void                  choose_by_worth(size_t n_most);
    bool                  evaluate();
    int32_t               send_children(int32_t i_node, int32_t i_row, const step_time * t);
    void                  report(int64_t t0, int64_t t1, int64_t hidden_us, int32_t n_made, int32_t depth);
    [[nodiscard]] bool    fits(int32_t i_node) const;
    [[nodiscard]] int32_t n_expanded() const;
    [[nodiscard]] bool    complete() const;
    [[nodiscard]] int32_t pos_of(int32_t i_node) const { return int32_t(text_.size()) - 1 + tree_.at(i_node).depth; }

    token_model & model_;
    wires &       wires_;

    const request *       req_ = nullptr; // null: no work
    std::vector<token_id> text_;          // committed tokens
    draft_cache           cache_;
    token_tree            tree_;          // root: text_.back()
    tree_shape            shape_;         // empty: best first
    node_id               n_ids_     = 0; // last id given
    int32_t               n_ahead_   = 1; // levels below the root that the target wants
    int32_t               n_branch_  = 1; // nodes in a step at most
    int32_t               n_want_    = 0; // pause when the best n_want_ nodes are known; 0: no such bound
    int32_t               n_threads_ = 0; // of its steps; 0: all that the model was given
    float least_path_ = -std::numeric_limits<float>::infinity(); // log of the chance below which a node is not expanded
    float branch_price_ = 1.0;  // one node more in a step, as a share of a step over one
    bool  readable_     = true; // the draft's vocabulary has all of text_
    bool  paused_       = false;
    bool  typical_      = false; // the step's duration says something about the next one's

    std::vector<int32_t>   batch_;    // nodes of the step: indices in the tree
    std::vector<int32_t>   branches_; // theirs
    std::vector<int32_t>   places_;   // of all nodes in shape_
    std::vector<token_id>  path_;     // scratch
    std::vector<row>       rows_;     // scratch
    std::vector<candidate> children_; // scratch
};

} // namespace duo
