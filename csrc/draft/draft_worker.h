// The draft's thread: take verdicts, grow the tree, send the nodes.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "branch_pool.h"
#include "draft_text.h"
#include "model/acceptance.h"
#include "model/token_model.h"
#include "rings/eager_wait.h"
#include "wires/usage.h"
#include "wires/wires.h"

namespace duo {

// All members belong to the thread that calls run().
class draft_worker {
  public:
    // n_texts: texts at once; messages name them by slots from 0. Throws std::runtime_error if the model has fewer
    // branches. free_core: no other thread needs the draft's core.
    draft_worker(token_model & model, wires & w, int32_t n_texts = 1, bool free_core = false);

    // From any thread.
    [[nodiscard]] worker_usage usage() const { return board_.read(); }

    // Until the verdict channel is closed. Does not throw.
    void run() noexcept;

  private:
    struct step_time {
        int64_t t0        = 0;
        int64_t busy0     = 0; // what the target's clock showed then
        int64_t t_rows    = 0; // the rows are evaluated
        int64_t beside_us = 0; // part of the time until then in which the target worked too
    };

    // A text's part of a step: its root, whose row comes after all that is missing of the text, or nodes of its tree.
    struct part {
        draft_text *         text = nullptr;
        std::vector<int32_t> nodes;         // indices in the tree
        std::vector<int32_t> branches;      // theirs
        size_t               i_row     = 0; // its first row
        size_t               n_rows    = 0;
        int32_t              n_made    = 0;     // children
        bool                 evaluated = false; // its last rows are those of the nodes

        [[nodiscard]] bool reads() const { return !nodes.empty() && nodes.front() == 0; }
    };

    bool               take_verdicts() noexcept;
    void               take(draft_text & text, const verdict_msg & v);
    void               take_features(const verdict_msg & v);
    void               take_orders(draft_text & text, const verdict_msg & v);
    void               pause(draft_text & text);
    void               fail(draft_text & text, const char * why) noexcept;
    void               do_errand(draft_text & text, const request & req) noexcept;
    void               do_errand(draft_text & text, errand & job);
    void               read_to_end(draft_text & text);
    void               fail_step(const char * why) noexcept;
    [[nodiscard]] bool wants_step(const draft_text & t) const;
    [[nodiscard]] bool any_wants_step() const;
    void               tell_usage() noexcept;

    // A step (draft_choice.cpp, draft_step.cpp).
    void                                    step();
    bool                                    choose();
    int32_t                                 make_room(const draft_text & text, int32_t n_free);
    bool                                    shares_cache(const draft_text & text) const;
    void                                    keep_what_pays();
    void                                    set_rows();
    void                                    set_rows_of_text(part & p, size_t n_most);
    void                                    set_rows_of_nodes(part & p);
    void                                    set_states();
    void                                    keep_states(const part & p);
    bool                                    evaluate();
    [[nodiscard]] const std::atomic<bool> & stop_sign() const;
    int32_t send_children(draft_text & text, int32_t i_node, int32_t i_row, const step_time * t);
    int32_t send_block(part & p, int32_t i_row);
    void    keep_likely(float p_min, int32_t n_wanted);
    void    estimate(double power);
    void    lower_others(draft_text & text, int32_t i_node, float said, float estimate, int16_t age);
    void    draw_children(const draft_text & text, int32_t i_node, int32_t i_row, size_t n_most);
    void    report(int64_t t0, int64_t t1, int64_t hidden_us, int32_t n_made, int32_t depth);

    token_model &           model_;
    wires &                 wires_;
    branch_pool             pool_;
    node_counter            ids_;
    eager_wait              wait_;
    std::vector<draft_text> texts_; // by slot

    usage_board  board_;
    worker_usage usage_; // scratch

    bool                   typical_ = false; // the step's duration says something about the next one's
    std::vector<part>      parts_;           // of the step; more than n_parts_ of them are kept for their memory
    size_t                 n_parts_ = 0;
    int32_t                n_nodes_ = 0; // of the step that were evaluated
    std::vector<row>       rows_;
    std::vector<token_id>  path_;      // scratch
    std::vector<int32_t>   block_;     // scratch
    std::vector<candidate> children_;  // scratch
    std::vector<candidate> chances_;   // scratch
    std::vector<float>     said_;      // scratch: of children_, log of the chance by the model
    std::vector<float>     estimates_; // scratch: the same as the tree has it
    acceptance             acceptance_;
    std::vector<float>     inputs_; // a head's, of the step: rows of the target's states, and what it makes of them
    std::vector<float>     states_;
    std::vector<float>     state_; // scratch
};

} // namespace duo
