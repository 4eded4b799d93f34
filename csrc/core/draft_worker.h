// The draft's thread: take verdicts, grow the tree, send the nodes.
#pragma once

#include <cstdint>
#include <vector>

#include "request.h"
#include "token_model.h"
#include "token_tree.h"
#include "wires.h"

namespace duo {

// All members belong to the thread that calls run(). One request at a time; its slot number travels along.
class draft_worker {
  public:
    draft_worker(token_model & model, wires & w) : model_(model), wires_(w) {}

    // Until the verdict channel is closed. Does not throw.
    void run() noexcept;

  private:
    void take_verdicts();
    void apply(const verdict_msg & v);
    void begin(const request & req);
    void end();
    void step();
    void commit(token_id token);
    void pause();
    void fail(const std::string & why) noexcept;
    bool evaluate(int32_t i_node, bool & typical);

    token_model & model_;
    wires &       wires_;

    const request *       req_ = nullptr;   // null: no work
    std::vector<token_id> text_;            // committed tokens
    std::vector<token_id> cached_;          // tokens whose positions the model's cache holds (branch 0)
    token_tree            tree_;            // root: text_.back()
    node_id               n_ids_    = 0;    // last id given
    int32_t               n_ahead_  = 1;    // levels below the root that the target wants
    bool                  readable_ = true; // the draft's vocabulary has all of text_
    bool                  paused_   = false;

    std::vector<token_id>  path_;     // scratch of evaluate()
    std::vector<row>       rows_;     // scratch
    std::vector<candidate> children_; // scratch
};

} // namespace duo
