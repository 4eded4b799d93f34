#include "page_fetcher.h"

#include <algorithm>
#include <new>
#include <system_error>
#include <utility>

#include "base/huge_page.h"

namespace duo::cpu {

namespace {
constexpr double sum_decay   = 0.98; // with each piece: other programs use the disk, too
constexpr size_t n_last_most = 8;    // pages at a piece's end of which one should not have been in memory
} // namespace

page_fetcher::page_fetcher(page_system system, std::function<int64_t()> now)
    : system_(std::move(system)), now_(std::move(now)) {
}

page_fetcher::~page_fetcher() {
    {
        const std::lock_guard lock(mutex_);
        order_.ends = true;
    }
    news_.notify_one();
    if (thread_.joinable()) {
        thread_.join();
    }
}

void page_fetcher::fetch(std::span<const piece> pieces, uint64_t round) {
    {
        const std::lock_guard lock(mutex_);
        order_.pieces.assign(pieces.begin(), pieces.end());
        order_.i_next = 0;
        if (std::exchange(order_.round, round) != round) {
            order_.begun.clear();
        }
    }
    news_.notify_one();
    if (!thread_.joinable()) {
        try {
            thread_ = std::thread([this] { work(); });
        } catch (const std::system_error &) { // no more threads: pages come when they are used
        }
    }
}

void page_fetcher::work() {
    use_cpus(cpus_);
    for (;;) {
        try {
            return carry_out();
        } catch (const std::bad_alloc &) {
            drop();
        }
    }
}

// Pages come when they are used.
void page_fetcher::drop() {
    const std::lock_guard lock(mutex_);
    order_.pieces.clear();
    order_.i_next = 0;
    flying_.clear();
}

// Until the fetcher ends.
void page_fetcher::carry_out() {
    for (;;) {
        const std::optional<piece> p = next();
        if (p) {
            begin(*p);
        } else if (flying_.empty()) {
            return;
        }
        if (!p || flying_.size() >= n_flying_most) {
            end_first();
        }
    }
}

// Waits for an order if nothing flies. Empty: there is none.
std::optional<page_fetcher::piece> page_fetcher::next() {
    std::unique_lock lock(mutex_);
    for (;;) {
        if (order_.ends) {
            flying_.clear();
            return std::nullopt;
        }
        while (order_.i_next < order_.pieces.size()) {
            const piece p = order_.pieces[order_.i_next++];
            if (order_.begun.insert(p.data()).second) {
                return p;
            }
        }
        if (!flying_.empty()) {
            return std::nullopt;
        }
        news_.wait(lock);
    }
}

void page_fetcher::begin(piece p) {
    const int64_t         t    = now_();
    const uint8_t * const last = last_missing(p);
    const uint64_t        n    = std::min<uint64_t>(system_.fetch(p.data(), p.size()), p.size());
    n_asked_                   = n_asked_ * sum_decay + double(p.size());
    n_missed_                  = n_missed_ * sum_decay + double(n);
    missing_.store(n_missed_ / n_asked_, std::memory_order_relaxed);
    if (n > 0) {
        flying_.push_back({last, t, n});
    }
}

// The page at a piece's end is also the next matrix's, and may be in memory for that one.
const uint8_t * page_fetcher::last_missing(piece p) const {
    const size_t n_page = page_size();
    for (size_t i = 0; i < n_last_most && i * n_page < p.size(); ++i) {
        const uint8_t * const at = &p.back() - i * n_page;
        if (!system_.in_memory(at)) {
            return at;
        }
    }
    return nullptr;
}

// The last missing page of a piece is read last. Pieces that fly together share the disk, so each one's time begins
// where the last one's ended. Without such a page, nobody knows when a piece is there, so it does not count.
void page_fetcher::end_first() {
    if (flying_.empty()) {
        return;
    }
    const flight f = flying_.front();
    flying_.pop_front();
    if (f.last == nullptr) {
        return;
    }
    system_.wait(f.last);
    const int64_t t = now_();
    n_read_         = n_read_ * sum_decay + double(f.n_bytes);
    us_             = us_ * sum_decay + double(std::max<int64_t>(1, t - std::max(f.t_us, t_last_)));
    t_last_         = t;
    bytes_per_us_.store(n_read_ / us_, std::memory_order_relaxed);
}

} // namespace duo::cpu
