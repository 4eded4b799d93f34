// The size of OpenMP teams that say none themselves: packing here, and ggml's own packing for AMX.
#pragma once

namespace duo::cpu {

// While it lives, such teams of this thread have n members; without it as many as the machine has processors, whatever
// a container allows.
class team_size {
  public:
    explicit team_size(int n);
    ~team_size();
    team_size(const team_size &)             = delete;
    team_size & operator=(const team_size &) = delete;

  private:
    int before_;
};

// Members of a team that this thread would start now.
int threads_here();

} // namespace duo::cpu
