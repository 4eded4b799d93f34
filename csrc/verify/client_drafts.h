// What is known of the drafts of a host's clients. One of them is in use at a time, and the planner has what is known
// of it, so that no client decides for the others.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "plan/planner.h"
#include "verify_slot.h"

namespace duo {

// Belongs to the verify worker's thread. Where no texts of other processes are written, all texts have client 0.
class client_drafts {
  public:
    static constexpr size_t n_most = 64; // clients that are remembered

    // The planner must outlive it.
    explicit client_drafts(planner & plans) : planner_(plans) {}

    // The planner goes by this client's draft from now on.
    void                   use(uint64_t client);
    [[nodiscard]] uint64_t used() const { return used_; }
    // Among several texts: by the draft whose steps take the median time, of those whose steps were measured.
    void                 use_median(const std::vector<verify_slot *> & texts);
    [[nodiscard]] size_t size() const { return others_.size() + 1; } // drafts of which something may be known

    // A step of the text's draft. shared: part of its time in which the target worked too.
    void                               on_step(const verify_slot & s, int32_t n_rows, float us, double shared);
    [[nodiscard]] guess_record &       guesses_of(const verify_slot & s);
    [[nodiscard]] const guess_record & guesses_of(const verify_slot & s) const;

  private:
    draft_memory &       memory_of(uint64_t client);
    [[nodiscard]] double step_us(uint64_t client) const;

    struct known {
        draft_memory memory{};
        uint64_t     n_asked = 0; // when it was needed last
    };

    planner &                 planner_;
    uint64_t                  used_    = 0;
    uint64_t                  n_asked_ = 0;
    std::map<uint64_t, known> others_;
};

} // namespace duo
