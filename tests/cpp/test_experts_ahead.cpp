// Which experts are read ahead from a scripted disk, and when.
#include <condition_variable>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

#include "check.h"
#include "cpu/experts_ahead.h"

using namespace duo;
using namespace duo::cpu;

namespace {

// A disk that reads a piece for another thread when it is allowed to. What the test's own thread wants is there at
// once. Each has a clock of its own.
class scripted_disk {
  public:
    explicit scripted_disk(size_t n_bytes) : file_(n_bytes) {}

    page_system system() {
        return {.is_mapped   = [this](const uint8_t * p) { return p >= begin() && p < begin() + file_.size(); },
                .in_memory   = [](const uint8_t *) { return false; },
                .want        = [this](const uint8_t * p, size_t n) { want(p, n); },
                .n_read      = [this] { return ++n_rounds_; },
                .wait        = [this](const uint8_t *, size_t) { wait(); },
                .n_read_here = [this] { return locked([this] { return n_read_; }); }};
    }
    std::function<int64_t()> clock() {
        return [this] { return locked([this] { return is_test() ? t_test_us_ : t_us_; }); };
    }

    const uint8_t * begin() const { return file_.data(); }

    // So many bytes take a microsecond.
    void set_speed(int64_t bytes_per_us) {
        locked([&] { return bytes_per_us_ = bytes_per_us; });
    }
    void pass_time(int64_t us) {
        locked([&] { return t_test_us_ += us; });
    }
    // Pieces of [offset, offset + n) are in memory.
    void keep(size_t offset, size_t n) {
        locked([&] { return kept_ = {offset, n}; });
    }
    // Waits until so many pieces were wanted, and takes their offsets.
    std::vector<size_t> wanted(size_t n) {
        std::unique_lock lock(mutex_);
        news_.wait(lock, [&] { return wanted_.size() >= n; });
        return std::exchange(wanted_, {});
    }
    // So many pieces more may be waited for.
    void allow(int n) {
        locked([&] { return n_allowed_ += n; });
        news_.notify_all();
    }

  private:
    bool is_test() const { return std::this_thread::get_id() == test_; }

    template <class F> std::invoke_result_t<F> locked(F f) {
        const std::lock_guard lock(mutex_);
        return f();
    }
    void want(const uint8_t * p, size_t n) {
        const std::lock_guard lock(mutex_);
        const auto            at = size_t(p - begin());
        if (is_test()) {
            return;
        }
        wanted_.push_back(at);
        if (at < kept_.first || at >= kept_.first + kept_.second) {
            n_read_ += n;
            flying_.push_back(int64_t(n));
        }
        news_.notify_all();
    }
    void wait() {
        std::unique_lock lock(mutex_);
        news_.wait(lock, [this] { return n_allowed_ > 0; });
        --n_allowed_;
        t_us_ += flying_.front() / bytes_per_us_;
        flying_.erase(flying_.begin());
    }

    const std::thread::id     test_ = std::this_thread::get_id();
    std::vector<uint8_t>      file_;
    std::mutex                mutex_;
    std::condition_variable   news_;
    std::vector<size_t>       wanted_;
    std::vector<int64_t>      flying_;
    std::pair<size_t, size_t> kept_;
    uint64_t                  n_rounds_     = 0;
    uint64_t                  n_read_       = 0;
    int64_t                   t_us_         = 0;
    int64_t                   t_test_us_    = 0;
    int64_t                   bytes_per_us_ = 1;
    int                       n_allowed_    = 0;
};

using offsets = std::vector<size_t>;

} // namespace

TEST(pieces_are_read_in_their_order_and_few_at_once) {
    scripted_disk                    disk(1000);
    page_fetcher                     f(disk.system(), disk.clock());
    std::vector<page_fetcher::piece> pieces;
    for (size_t i = 0; i < 10; ++i) {
        pieces.emplace_back(disk.begin() + i * 100, 100);
    }
    f.fetch(pieces, 1);
    CHECK(disk.wanted(4) == offsets({0, 100, 200, 300})); // the disk works on these
    disk.allow(1);
    CHECK(disk.wanted(1) == offsets({400}));
    // Of the new order, what has begun is not read again, and the rest of the old one is dropped.
    f.fetch(std::vector<page_fetcher::piece>{pieces[9], pieces[2], pieces[5]}, 1);
    disk.allow(2);
    CHECK(disk.wanted(2) == offsets({900, 500}));
    f.fetch(std::vector<page_fetcher::piece>{pieces[2]}, 2); // a new round: it may have gone
    disk.allow(1);
    CHECK(disk.wanted(1) == offsets({200}));
    disk.allow(10);
}

TEST(the_disk_is_measured) {
    scripted_disk disk(10000);
    disk.set_speed(5);
    disk.keep(5000, 5000);
    disk.allow(1000);
    page_fetcher f(disk.system(), disk.clock());
    CHECK_EQ(f.bytes_per_us(), 0.0);
    for (uint64_t round = 1; round <= 20; ++round) {
        std::vector<page_fetcher::piece> pieces;
        for (size_t i = 0; i < 10; ++i) {
            pieces.emplace_back(disk.begin() + i * 1000, 1000);
        }
        f.fetch(pieces, round);
        disk.wanted(10);
    }
    f.fetch(std::vector<page_fetcher::piece>{{disk.begin() + 9000, 1000}}, 99);
    disk.wanted(1); // the ones before have been waited for
    CHECK(f.bytes_per_us() > 4.9 && f.bytes_per_us() < 5.1);
    CHECK(f.missing() > 0.3 && f.missing() < 0.7);
}

namespace {

// Three layers of a router, and of two weights with eight experts each, of which a row needs two.
struct mixture {
    static constexpr size_t  n_bytes  = 1000; // of a matrix
    static constexpr int32_t n_expert = 8;
    static constexpr size_t  n_layer  = 2 * n_expert * n_bytes;

    scripted_disk disk{3 * n_layer};
    page_reader   pages{disk.system()};
    experts_ahead ahead{pages, disk.system(), disk.clock()};
    int           routers[3]{};

    explicit mixture(int64_t bytes_per_us) {
        disk.set_speed(bytes_per_us);
        disk.allow(100000);
    }

    // The product of a layer; the router chooses these experts.
    void compute(size_t layer, const std::vector<int32_t> & chosen) {
        for (size_t weight = 0; weight < 2; ++weight) {
            const uint8_t * data = disk.begin() + layer * n_layer + weight * n_expert * n_bytes;
            pages.before_experts(data, n_bytes, &routers[layer], chosen);
            if (ahead.active()) {
                ahead.before_experts({.experts = chosen, .n_used = 2}, n_expert);
            }
        }
        disk.pass_time(10);
    }
    // Where an expert's first matrix lies.
    static size_t at(size_t layer, size_t expert) { return layer * n_layer + expert * n_bytes; }
    // Each token has experts of its own.
    static std::vector<int32_t> experts_of(token_id token) { return {token % 4, 4 + token % 4}; }

    void pass(token_id token) {
        const experts_ahead::row row{token, true};
        ahead.begin_pass({&row, 1});
        for (size_t layer = 0; layer < 3; ++layer) {
            compute(layer, experts_of(token));
        }
    }

    // Passes over four tokens, of which the second comes next; until the disk is measured.
    void learn() {
        for (int i = 0, x = 0; i < 48; ++i) {
            x = (5 * x + 3) % 16;
            pass(x / 4);
        }
        const token_id next = 1;
        do {
            ahead.expect({&next, 1});
            std::this_thread::yield();
        } while (ahead.fetcher().bytes_per_us() == 0.0);
        ahead.expect({&next, 1});
    }
};

// Bytes in a microsecond. A layer takes ten, and an expert two matrices.
constexpr int64_t fast = 10 * mixture::n_bytes;
constexpr int64_t slow = mixture::n_bytes / 10; // an expert takes as long as two layers

bool has(const offsets & all, size_t one) {
    return std::ranges::find(all, one) != all.end();
}

} // namespace

TEST(experts_of_known_tokens_are_read_before_the_pass_comes_to_them) {
    mixture m(fast);
    CHECK(!m.ahead.active()); // nobody has had to read
    m.learn();
    CHECK(m.ahead.active());
    CHECK(m.ahead.forecast()->shape() == expert_shape({.n_layer = 3, .n_expert = 8, .n_used = 2}));
    m.disk.wanted(0);
    const token_id next = 2;
    m.ahead.expect({&next, 1});
    offsets found;
    while (!has(found, m.at(0, 2)) || !has(found, m.at(2, 6))) {
        const offsets more = m.disk.wanted(1);
        found.insert(found.end(), more.begin(), more.end());
    }
    CHECK(!has(found, m.at(0, 1)));
}

TEST(as_much_is_ordered_as_the_disk_brings_in_time) {
    using these = std::vector<layer_expert>;
    mixture m(fast);
    m.learn();
    const auto all = m.ahead.ordered();
    CHECK(these(all.begin(), all.end()) == these({{0, 1}, {0, 5}, {1, 1}, {1, 5}, {2, 1}, {2, 5}}));
    mixture n(slow);
    n.learn();
    const auto few = n.ahead.ordered();
    CHECK(these(few.begin(), few.end()) == these({{0, 1}, {1, 1}, {2, 1}}));
}

TEST(nothing_is_foreseen_if_it_is_off) {
    mixture m(fast);
    set_foresight(foresight::off);
    for (int i = 0; i < 8; ++i) {
        m.pass(i % 4);
    }
    CHECK(!m.ahead.active());
    CHECK(m.ahead.forecast() == nullptr);
    set_foresight(foresight::needed);
}

TEST(the_next_layers_router_is_asked_for_where_it_helps) {
    mixture m(fast);
    CHECK_EQ(m.ahead.layer_after(0, 1), -1); // nothing is known yet
    for (int i = 0; i < 4; ++i) {
        m.pass(i);
    }
    CHECK_EQ(m.ahead.layer_after(-1, 1), -1);
    CHECK_EQ(m.ahead.layer_after(0, 1), 1);
    CHECK_EQ(m.ahead.layer_after(2, 1), -1);   // the last one
    CHECK_EQ(m.ahead.layer_after(0, 100), -1); // so many rows need all experts
    m.ahead.hear_router(1, std::vector<float>(8, 1.0f));
    m.ahead.hear_router(1, std::vector<float>(7, 1.0f)); // of another number of experts
}
