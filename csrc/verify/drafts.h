// The target's messages to the drafts of all texts, and the drafts' messages to it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "pass_planner.h"
#include "target_cache.h"
#include "wires/wires.h"

namespace duo {

// Belongs to the verify worker's thread.
class drafts {
  public:
    enum class place : uint8_t { none, here, elsewhere };

    // All but the place must outlive it.
    drafts(token_model & model, target_cache & cache, pass_planner & plans, wires & w, place where);

    // A request that may have a draft.
    [[nodiscard]] bool wanted(const request & req) const;
    [[nodiscard]] bool here() const { return place_ == place::here; }

    // The text is about to begin in this slot: whether it may have a draft, and what messages to and from it name.
    void               begin_text(verify_slot & s, request & req);
    void               begin(verify_slot & s, const request & req);
    [[nodiscard]] bool reachable(const verify_slot & s) const {
        return s.for_draft && reachable_[size_t(s.message_slot)];
    }
    // Begins with the text as it is now. n_window: see window_choice; used if the request leaves the choice.
    void begin_in_mid_text(verify_slot & s, int32_t n_window);
    // On shared cores the target writes the first token alone. The draft reads the text when that is worth its time.
    void begin_if_it_pays(verify_slot & s);
    // Begins those of texts that have their first token: until then, all cores read the prompt. True: one begins.
    bool begin_owed(const std::vector<verify_slot *> & texts);
    // The context was shifted.
    void on_shift(verify_slot & s);
    // The text ends or waits, so its draft ends too.
    void end(verify_slot & s);
    // The engine closes: no draft goes on reading.
    void stop_reading() noexcept;

    // Takes what the drafts have sent.
    void take_nodes() noexcept;
    // Sends a message, with the planner's orders.
    void tell(verify_slot & s, verdict_msg v);
    // Before the verdict: the hidden states of the pass's rows that are text now. Nobody waits for a draft head that is
    // behind. Without them it goes on from the next ones.
    void send_features(const verify_slot & s);
    // Wakes the draft once for all texts of a pass, so that its next step has nodes of all of them.
    void wake();
    // Tells drafts to rest that were told to work and would otherwise do so beside the next pass.
    void send_to_rest(const std::vector<verify_slot *> & texts);

    // Frees the requests that neither a draft nor a text needs.
    void                 forget_late_begins();
    [[nodiscard]] size_t n_late_begins() const { return late_begins_.size(); }

  private:
    using state = draft_contact::state;

    void begin_reading(verify_slot & s, int64_t us);
    // The slot whose draft is at work at that line; null: none.
    verify_slot * drafting_at(int32_t line);
    void          on_link(int32_t line, bool up) noexcept;
    void          on_message(verify_slot & s, const node_msg & msg);
    void          on_node(verify_slot & s, const node_msg & msg);

    token_model &     model_;
    target_cache &    cache_;
    pass_planner &    plans_;
    wires &           wires_;
    const place       place_;
    std::vector<bool> reachable_;     // by line: messages reach the draft
    bool              wakes_ = false; // verdicts were sent without waking the draft

    // Requests with which a draft began in mid-text: late, or after its host came back. Each is kept until the draft
    // sets its draft_done. Nobody but this cancels them.
    std::vector<std::unique_ptr<request>> late_begins_;
    uint64_t                              n_late_begins_ = 0;
};

} // namespace duo
