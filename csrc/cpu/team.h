// OpenMP teams: their default size, for packing here and for ggml's own packing for AMX, and a call on each member.
#pragma once

#include <functional>

namespace duo::cpu {

// While it exists, such teams of this thread have n members. Otherwise they have as many as the machine has processors,
// even if a container allows fewer.
class team_size {
  public:
    explicit team_size(int n);
    ~team_size();
    team_size(const team_size &)             = delete;
    team_size & operator=(const team_size &) = delete;

  private:
    int before_;
};

// Size of a team that this thread would start now.
int threads_here();

// The number of the calling thread in its team; 0 starts the team.
int member_here();

// Calls f once on the calling thread and on each other member of the team of n that it starts next. f does not throw.
void on_team(int n, const std::function<void()> & f);

} // namespace duo::cpu
