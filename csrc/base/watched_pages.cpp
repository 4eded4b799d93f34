#include "watched_pages.h"

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

// The signal handler reads these, so they are atomic and never freed. begin == 0: free.
struct watched_range {
    std::atomic<uintptr_t> begin{0};
    std::atomic<uintptr_t> end{0};
    std::atomic<bool>      lost{false};
};

namespace {

std::array<watched_range, 1024> ranges;

// nullptr: none that is watched has this address.
watched_range * range_of(uintptr_t at) {
    for (watched_range & r : ranges) {
        if (at >= r.begin.load(std::memory_order_acquire) && at < r.end.load(std::memory_order_acquire)) {
            return &r;
        }
    }
    return nullptr;
}

} // namespace

#if defined(DUO_HAS_MMAP)

namespace {

static_assert(std::atomic<uintptr_t>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

std::mutex       making;    // ranges and the handler
struct sigaction before {}; // what handled the signal
const size_t     n_page = page_size();

// True: `at` can be read now. All behind it is replaced, too: a file that became shorter has no pages there, and the
// number of mappings is limited.
bool replace(uintptr_t at) {
    watched_range * const r = range_of(at);
    if (r == nullptr) {
        return false;
    }
    const uintptr_t page = at / n_page * n_page;
    r->lost.store(true);
    return mmap(reinterpret_cast<void *>(page), r->end.load() - page, PROT_READ,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
}

// Calls only what a signal handler may call.
void on_unreadable(int signal, siginfo_t * info, void * context) {
    const int why = errno;
    if (!replace(reinterpret_cast<uintptr_t>(info->si_addr))) {
        if ((before.sa_flags & SA_SIGINFO) != 0) {
            before.sa_sigaction(signal, info, context);
        } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
            before.sa_handler(signal);
        } else {
            std::signal(signal, SIG_DFL); // it comes again when this returns
        }
    }
    errno = why;
}

// Again for each range: a program may have set another handler meanwhile.
void set_handler() {
    struct sigaction now {};
    if (sigaction(SIGBUS, nullptr, &now) != 0 ||
        ((now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == on_unreadable)) {
        return;
    }
    before = now;
    struct sigaction ours {};
    ours.sa_sigaction = on_unreadable;
    ours.sa_flags     = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&ours.sa_mask);
    sigaction(SIGBUS, &ours, nullptr);
}

} // namespace

watched_pages::watched_pages(const void * data, size_t size) : range_(nullptr) {
    const std::lock_guard hold(making);
    set_handler();
    for (watched_range & r : ranges) {
        if (r.begin.load() == 0) {
            r.lost.store(false);
            r.end.store(reinterpret_cast<uintptr_t>(data) + size);
            r.begin.store(reinterpret_cast<uintptr_t>(data), std::memory_order_release);
            range_ = &r;
            return;
        }
    }
}

watched_pages::~watched_pages() {
    if (range_ != nullptr) {
        const std::lock_guard hold(making);
        range_->end.store(0);
        range_->begin.store(0);
    }
}

#else

watched_pages::watched_pages(const void *, size_t) : range_(nullptr) {
}

watched_pages::~watched_pages() = default;

#endif

bool watched_pages::watches(const void * address) {
    return range_of(reinterpret_cast<uintptr_t>(address)) != nullptr;
}

bool watched_pages::lost() const {
    return range_ != nullptr && range_->lost.load();
}

} // namespace duo
