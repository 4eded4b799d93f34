#include "team_place.h"

#include <atomic>
#include <utility>

#include "base/thread_cpus.h"
#include "team.h"

#if defined(__linux__)
#include <sys/resource.h>
#endif

namespace duo::cpu {

namespace {

std::atomic<uint64_t> n_placers{0};
thread_local bool     allowed = false;

// Of which placer, pass and member this thread has the place.
struct held_place {
    uint64_t placer                               = 0;
    bool     wide                                 = false;
    int      member                               = 0;
    bool     operator==(const held_place &) const = default;
};
thread_local held_place held;

team_place place_here() {
    team_place p;
    p.cpus = cpus_here();
#if defined(__linux__)
    p.nice = getpriority(PRIO_PROCESS, 0); // Linux: of this thread
#endif
    return p;
}

void use_nice([[maybe_unused]] int32_t nice) {
#if defined(__linux__)
    setpriority(PRIO_PROCESS, 0, nice);
#endif
}

} // namespace

void allow_team_places() {
    allowed = true;
}

team_placer::team_placer(team_place narrow, team_place wide)
    : places_{std::move(narrow), std::move(wide)}, name_(++n_placers) {
}

void team_placer::before_pass(bool wide, int n) {
    if (!allowed || !(places_cpus() || places_nice())) {
        return;
    }
    if (!before_) {
        before_ = place_here();
    }
    on_team(n, [this, wide] { place_member(wide); });
}

void team_placer::place_member(bool wide) const {
    const held_place mine{.placer = name_, .wide = wide, .member = member_here()};
    if (held == mine) {
        return;
    }
    const team_place & p    = places_[size_t(wide)];
    const auto &       cpus = p.cpus.empty() ? before_->cpus : p.cpus;
    if (places_cpus() && !cpus.empty()) {
        use_cpus(p.strict && !p.cpus.empty() ? std::vector{cpus[size_t(mine.member) % cpus.size()]} : cpus);
    }
    if (places_nice()) {
        use_nice(p.nice ? *p.nice : before_->nice.value_or(0));
    }
    held = mine;
}

} // namespace duo::cpu
