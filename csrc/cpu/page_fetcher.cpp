#include "page_fetcher.h"

#include <algorithm>
#include <system_error>
#include <utility>

namespace duo::cpu {

namespace {
constexpr double sum_decay = 0.98; // with each piece: other programs use the disk, too
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
        order_.round  = round;
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
            const piece p  = order_.pieces[order_.i_next++];
            auto &      at = order_.begun[p.data()];
            if (std::exchange(at, order_.round) != order_.round) {
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
    const int64_t  t      = now_();
    const uint64_t before = system_.n_read_here();
    system_.want(p.data(), p.size());
    const uint64_t n = std::min<uint64_t>(system_.n_read_here() - before, p.size());
    n_asked_         = n_asked_ * sum_decay + double(p.size());
    n_missed_        = n_missed_ * sum_decay + double(n);
    missing_.store(n_missed_ / n_asked_, std::memory_order_relaxed);
    if (n > 0) {
        flying_.push_back({p, t, n});
    }
}

// Pieces that fly together share the disk, so each one's time begins where the last one's ended.
void page_fetcher::end_first() {
    if (flying_.empty()) {
        return;
    }
    const flight f = flying_.front();
    flying_.pop_front();
    system_.wait(f.what.data(), f.what.size());
    const int64_t t = now_();
    n_read_         = n_read_ * sum_decay + double(f.n_bytes);
    us_             = us_ * sum_decay + double(std::max<int64_t>(1, t - std::max(f.t_us, t_last_)));
    t_last_         = t;
    bytes_per_us_.store(n_read_ / us_, std::memory_order_relaxed);
}

} // namespace duo::cpu
