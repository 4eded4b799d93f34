#include "watched_pages.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>

#include "huge_page.h"

#if defined(DUO_HAS_MMAP)
#include <cerrno>
#include <csignal>
#include <sys/mman.h>
#endif

namespace duo {

// The signal handler reads these, so they are atomic and never freed. begin == 0: free, and `end` is not set yet.
struct watched_range {
    std::atomic<uintptr_t> begin{0};
    std::atomic<uintptr_t> end{0};
    std::atomic<bool>      lost{false};

    // The address behind it; 0: it does not have this one.
    [[nodiscard]] uintptr_t end_if_has(uintptr_t at) const {
        const uintptr_t first = begin.load();
        const uintptr_t last  = end.load();
        return first != 0 && first == begin.load() && at >= first && at < last ? last : 0;
    }
};

namespace {

std::array<watched_range, 1024> ranges;

} // namespace

#if defined(DUO_HAS_MMAP)

namespace {

static_assert(std::atomic<uintptr_t>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

std::mutex       making; // ranges
const size_t     n_page = page_size();
struct sigaction before {}; // what handled the signal

// True: `at` can be read now. All behind it is replaced, too: a file that became shorter has no pages there, and the
// number of mappings is limited.
bool replace(uintptr_t at) {
    for (watched_range & r : ranges) {
        if (const uintptr_t end = r.end_if_has(at); end != 0) {
            const uintptr_t page = at / n_page * n_page;
            r.lost.store(true);
            return mmap(reinterpret_cast<void *>(page), end - page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
                        -1, 0) != MAP_FAILED;
        }
    }
    return false;
}

// Whether the kernel says that a page cannot be read: nobody has sent the signal, and no address is odd.
bool is_of_page(const siginfo_t & info) {
#if defined(BUS_MCEERR_AR)
    return info.si_code == BUS_ADRERR || info.si_code == BUS_MCEERR_AR || info.si_code == BUS_MCEERR_AO;
#else
    return info.si_code > 0;
#endif
}

// As if this handler were not there.
void leave_to_others(int signal, siginfo_t * info, void * context) {
    if ((before.sa_flags & SA_SIGINFO) != 0) {
        before.sa_sigaction(signal, info, context);
    } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
        before.sa_handler(signal);
    } else if (before.sa_handler == SIG_DFL || info->si_code > 0) { // a fault cannot be ignored
        std::signal(signal, SIG_DFL);
        raise(signal); // it arrives when this returns
    }
}

// Calls only what a signal handler may call.
void on_unreadable(int signal, siginfo_t * info, void * context) {
    const int why = errno;
    if (!is_of_page(*info) || !replace(reinterpret_cast<uintptr_t>(info->si_addr))) {
        leave_to_others(signal, info, context);
    }
    errno = why;
}

// Only once: if a handler that was set later calls this one, the two must not call each other for ever.
void set_handler() {
    static const bool set = [] {
        struct sigaction ours {};
        ours.sa_sigaction = on_unreadable;
        ours.sa_flags     = SA_SIGINFO | SA_ONSTACK;
        sigemptyset(&ours.sa_mask);
        return sigaction(SIGBUS, nullptr, &before) == 0 && sigaction(SIGBUS, &ours, nullptr) == 0;
    }();
    (void)set;
}

} // namespace

watched_pages::watched_pages(const void * data, size_t size) : range_(nullptr) {
    const std::lock_guard hold(making);
    set_handler();
    for (watched_range & r : ranges) {
        if (r.begin.load() == 0) {
            r.lost.store(false);
            r.end.store(reinterpret_cast<uintptr_t>(data) + size);
            r.begin.store(reinterpret_cast<uintptr_t>(data)); // from here on
            range_ = &r;
            return;
        }
    }
}

watched_pages::~watched_pages() {
    if (range_ != nullptr) {
        const std::lock_guard hold(making);
        range_->begin.store(0);
        range_->end.store(0);
    }
}

#else

watched_pages::watched_pages(const void *, size_t) : range_(nullptr) {
}

watched_pages::~watched_pages() = default;

#endif

bool watched_pages::watches(const void * address) {
    return std::any_of(ranges.begin(), ranges.end(),
                       [at = reinterpret_cast<uintptr_t>(address)](const auto & r) { return r.end_if_has(at) != 0; });
}

bool watched_pages::lost() const {
    return range_ != nullptr && range_->lost.load();
}

} // namespace duo
