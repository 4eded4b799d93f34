#include "team.h"

#if defined(_OPENMP)
#include <omp.h>
#endif

namespace duo::cpu {

namespace {

void set_threads([[maybe_unused]] int n) {
#if defined(_OPENMP)
    omp_set_num_threads(n); // for the calling thread only
#endif
}

} // namespace

team_size::team_size(int n) : before_(threads_here()) {
    set_threads(n);
}

team_size::~team_size() {
    set_threads(before_);
}

int threads_here() {
#if defined(_OPENMP)
    return omp_get_max_threads();
#else
    return 1;
#endif
}

int member_here() {
#if defined(_OPENMP)
    return omp_get_thread_num();
#else
    return 0;
#endif
}

void on_team([[maybe_unused]] int n, const std::function<void()> & f) {
#if defined(_OPENMP)
    if (n > 1) {
#pragma omp parallel num_threads(n)
        f();
        return;
    }
#endif
    f();
}

} // namespace duo::cpu
