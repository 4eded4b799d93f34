// What happens when the cache is full: what is kept of ended texts goes, and texts are parked until there is room.
#pragma once

#include <cstddef>

#include "active_texts.h"
#include "drafts.h"
#include "pass_planner.h"
#include "target_cache.h"
#include "target_pass.h"

namespace duo {

// Belongs to the verify worker's thread.
class full_cache {
  public:
    // All must outlive it.
    full_cache(active_texts & texts, target_cache & cache, target_pass & pass, pass_planner & plans,
               drafts & all_drafts, bool on_host)
        : texts_(texts), cache_(cache), pass_(pass), plans_(plans), drafts_(all_drafts), on_host_(on_host) {}

    // Makes room for n more rows: first what is kept of ended texts goes; then the text that began last is parked, so
    // it waits until others have ended, and its rows of the pass need no room.
    void make_room(size_t n_rows);
    // A parked text goes on when the cache has room for what it had, and for as much again as a pass may add.
    void               wake_parked(size_t n_cells);
    [[nodiscard]] bool any_parked() const;

  private:
    void                        park(verify_slot & s);
    [[nodiscard]] verify_slot * last_to_wait() const;

    active_texts & texts_;
    target_cache & cache_;
    target_pass &  pass_;
    pass_planner & plans_;
    drafts &       drafts_;
    const bool     on_host_;
};

} // namespace duo
