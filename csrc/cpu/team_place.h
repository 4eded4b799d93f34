// Where the members of an OpenMP team run, and how urgently: for passes of one row, and for those of several.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

namespace duo::cpu {

struct team_place {
    std::vector<int32_t>   cpus{};         // empty: those that the thread had before
    bool                   strict = false; // each member has one of them, in turn; otherwise each has all
    std::optional<int32_t> nice{};         // as setpriority(2) has it; none: as before
};

// Teams of the calling thread are placed from now on. A thread that only loads a model keeps its CPUs and its priority.
void allow_team_places();

// For the teams that one thread starts. Only that thread calls it, and it does nothing in a thread that does not allow
// it, or if neither place asks for anything.
class team_placer {
  public:
    team_placer(team_place narrow, team_place wide);

    // The thread starts a team of n next. wide: for several rows.
    void before_pass(bool wide, int n);

  private:
    [[nodiscard]] bool places_cpus() const { return !places_[0].cpus.empty() || !places_[1].cpus.empty(); }
    [[nodiscard]] bool places_nice() const { return places_[0].nice || places_[1].nice; }
    void               place_member(bool wide) const;

    std::array<team_place, 2> places_;
    uint64_t                  name_;     // no other placer of this process has it
    std::optional<team_place> before_{}; // how the thread was before its first pass
};

} // namespace duo::cpu
