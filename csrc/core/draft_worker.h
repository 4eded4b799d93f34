// The draft's thread: take verdicts, grow the tree, send the nodes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "branch_pool.h"
#include "draft_text.h"
#include "token_model.h"
#include "wires.h"

namespace duo {

// All members belong to the thread that calls run(). One request at a time; its slot number travels along.
class draft_worker {
  public:
    draft_worker(token_model & model, wires & w) : model_(model), wires_(w), pool_(model), text_(model, pool_) {}

    // Until the verdict channel is closed. Does not throw.
    void run() noexcept;

  private:
    struct step_time {
        int64_t t0        = 0;
        int64_t busy0     = 0; // what the target's clock showed then
        int64_t t_rows    = 0; // the rows are evaluated
        int64_t beside_us = 0; // part of the time until then in which the target worked too
    };

    enum class evaluation : uint8_t {
        ready,      // the rows of all nodes of batch_ are the last of rows_
        unfinished, // a long text needs more batches, or the request ends
        no_branch,  // the cache has no free branch for any of them
    };

    void take_verdicts();
    void take_orders(const verdict_msg & v);
    void pause();
    void do_errand(const request & req) noexcept;
    void do_errand(errand & job);
    void fail(const std::string & why) noexcept;

    // A step (draft_step.cpp).
    void       step();
    evaluation evaluate();
    evaluation evaluate_text();
    evaluation evaluate_nodes();
    int32_t    send_children(int32_t i_node, int32_t i_row, const step_time * t);
    void       report(int64_t t0, int64_t t1, int64_t hidden_us, int32_t n_made, int32_t depth);

    token_model & model_;
    wires &       wires_;
    branch_pool   pool_;
    node_counter  ids_;
    draft_text    text_;

    bool                   typical_ = false; // the step's duration says something about the next one's
    std::vector<int32_t>   batch_;           // nodes of the step: indices in the tree
    std::vector<int32_t>   branches_;        // theirs
    std::vector<token_id>  path_;            // scratch
    std::vector<row>       rows_;            // scratch
    std::vector<candidate> children_;        // scratch
};

} // namespace duo
