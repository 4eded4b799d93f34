// Plans for the texts of a pass, and orders for their drafts: asks the planner of one text, or that of several.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "client_drafts.h"
#include "plan/planner.h"
#include "plan/pool_planner.h"
#include "target_cache.h"
#include "target_pass.h"
#include "window_choice.h"
#include "wires/wires.h"

namespace duo {

// Belongs to the verify worker's thread.
class pass_planner {
  public:
    // only: see pool_planner::expect(). Model, cache and wires must outlive it.
    pass_planner(token_model & model, target_cache & cache, wires & w, const pair_prior & prior,
                 std::optional<stance> only);

    [[nodiscard]] planner &            single() { return single_; }
    [[nodiscard]] const planner &      single() const { return single_; }
    [[nodiscard]] const pair_profile & profile() const { return single_.profile(); }
    [[nodiscard]] window_choice &      window() { return window_; }

    // How often guesses are right in texts of this kind.
    [[nodiscard]] guess_record & guesses_of(const verify_slot & s) { return clients_.guesses_of(s); }
    // A step of the text's draft. Its time is the draft's own claim, of which a minute at most is believed.
    void on_step(const verify_slot & s, const node_msg & msg, double shared) {
        clients_.on_step(s, msg.n_rows, std::min(msg.step_us, 6e7f), shared);
    }

    // ---- one text

    // Begins to plan for this text alone, unless that is so already.
    void               begin_single(verify_slot & s);
    [[nodiscard]] bool is_single(const verify_slot & s) const { return planned_slot_ == &s; }
    [[nodiscard]] bool is_single() const { return planned_slot_ != nullptr; }
    void               end_single() { planned_slot_ = nullptr; }
    // What the next pass verifies, of the nodes that are known now; or how long it should wait. may_wait: for nodes.
    plan next_single(verify_slot & s, bool may_wait);

    // ---- several texts

    // Decides how these texts are written, and what their drafts are told.
    void                              order(const std::vector<verify_slot *> & texts);
    [[nodiscard]] const pool_orders & orders() const { return orders_; }
    [[nodiscard]] stance              shared_stance() const { return pool_.stance_now(); }
    // Shares n drafted rows among the texts of the pass. > 0: it should wait so many microseconds for nodes.
    int64_t share_rows(target_pass & pass, int32_t n_rows, bool may_wait);
    // A pass over several texts has brought so many tokens. reads: drafts that begin read their texts in it.
    void on_shared_pass(int32_t n_tokens, double us, bool reads) {
        pool_.on_pass(single_.profile(), n_tokens, us, reads);
    }

    // ---- both

    // Adds what the text's draft is to do to a verdict. False: the draft works. True: it rests.
    bool set_orders(const verify_slot & s, verdict_msg & v) const;
    // A pass was evaluated. n_threads: of the target; 0: all.
    void measure(const target_pass & pass, int32_t n_threads);

  private:
    // What the next pass may verify of the text. least: chance of a node.
    void                  grow(verify_slot & s, double least);
    [[nodiscard]] int32_t n_verify_most(const verify_slot & s) const;
    // Round trip to the text's draft; 0: it is here.
    [[nodiscard]] int64_t away_us(const verify_slot & s) const {
        return wires_.rtt_us[size_t(s.line)].load(std::memory_order_relaxed);
    }
    [[nodiscard]] pool_share share_of(verify_slot & s, int32_t n_texts, bool may_wait);

    token_model &           model_;
    target_cache &          cache_;
    wires &                 wires_;
    planner                 single_;
    pool_planner            pool_;
    client_drafts           clients_;
    window_choice           window_;
    pool_orders             orders_;
    verify_slot *           planned_slot_ = nullptr; // single_ was told of its text
    std::vector<pool_share> shares_;                 // scratch
};

} // namespace duo
