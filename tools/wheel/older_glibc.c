// A wheel runs with an older glibc than that of the compiler's libstdc++. This is linked into each of its libraries,
// and nothing outside the library sees it.
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define OWN __attribute__((visibility("hidden")))

// ---- what libstdc++.a asks for and no older glibc has

OWN char __libc_single_threaded = 0; // never skips an atomic operation

OWN uint32_t arc4random(void) {
    uint32_t number = 0;
    while (syscall(SYS_getrandom, &number, sizeof number, 0) != sizeof number) {}
    return number;
}

// ---- what has a newer version in the sysroot's glibc (2.29, 2.30): the older one computes the same

#if defined(__aarch64__)
#define OLDEST "@GLIBC_2.17"
#else
#define OLDEST "@GLIBC_2.2.5"
#endif

#define OLDER(name)                                                                                                    \
    double older_##name(double);                                                                                       \
    __asm__(".symver older_" #name "," #name OLDEST);                                                                  \
    OWN double name(double x) {                                                                                        \
        return older_##name(x);                                                                                        \
    }

OLDER(exp)
OLDER(exp2)
OLDER(log)
OLDER(log2)

double older_pow(double, double);
__asm__(".symver older_pow,pow" OLDEST);
OWN double pow(double x, double y) {
    return older_pow(x, y);
}

// Waits up to a time of another clock, by the remaining time. libstdc++ looks at the clock again after it.
OWN int pthread_cond_clockwait(pthread_cond_t * condition, pthread_mutex_t * mutex, clockid_t clock,
                               const struct timespec * until) {
    const int64_t   second = 1000000000;
    struct timespec now, real;
    if (clock_gettime(clock, &now) != 0 || clock_gettime(CLOCK_REALTIME, &real) != 0) {
        return EINVAL;
    }
    const int64_t left = (int64_t)(until->tv_sec - now.tv_sec) * second + (until->tv_nsec - now.tv_nsec);
    const int64_t at   = real.tv_nsec + (left > 0 ? left : 0);
    real.tv_sec += (time_t)(at / second);
    real.tv_nsec = (long)(at % second);
    return pthread_cond_timedwait(condition, mutex, &real);
}
