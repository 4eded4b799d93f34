// The texts that are written, and those that wait until the cache has room for them.
#pragma once

#include <cstddef>
#include <vector>

#include "drafts.h"
#include "pass_planner.h"
#include "target_cache.h"
#include "target_pass.h"

namespace duo {

// Belongs to the verify worker's thread.
class active_texts {
  public:
    // All must outlive it.
    active_texts(target_cache & cache, target_pass & pass, pass_planner & plans, drafts & all_drafts, bool on_host)
        : cache_(cache), pass_(pass), plans_(plans), drafts_(all_drafts), on_host_(on_host) {
        texts_.reserve(cache.slots().size());
    }

    // Those that are written, in the order of their begin.
    [[nodiscard]] const std::vector<verify_slot *> & all() const { return texts_; }
    [[nodiscard]] size_t                             size() const { return texts_.size(); }
    [[nodiscard]] bool                               empty() const { return texts_.empty(); }
    void                                             add(verify_slot & s) { texts_.push_back(&s); }
    void                                             remove(verify_slot & s) { std::erase(texts_, &s); }

    // Makes room for n more rows: first what is kept of ended texts goes; then the text that began last is parked, so
    // it waits until others have ended, and its rows of the pass need no room.
    void make_room(size_t n_rows);
    // A parked text goes on when the cache has room for what it had, and for as much again as a pass may add.
    void               wake_parked(size_t n_cells);
    [[nodiscard]] bool any_parked() const;

  private:
    void                        park(verify_slot & s);
    [[nodiscard]] verify_slot * last_to_wait() const;

    target_cache &             cache_;
    target_pass &              pass_;
    pass_planner &             plans_;
    drafts &                   drafts_;
    const bool                 on_host_;
    std::vector<verify_slot *> texts_;
};

} // namespace duo
