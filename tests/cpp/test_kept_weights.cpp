// Which mapped weights are locked in memory.
#include <vector>

#include "check.h"
#include "cpu/kept_weights.h"

using namespace duo::cpu;

namespace {

// A mixture of two layers in a file: attention of 100 bytes, experts of 1000, and an output of 200. The system locks
// n_lockable bytes.
struct scene {
    std::vector<uint8_t>       file = std::vector<uint8_t>(2400);
    std::vector<mapped_weight> all{{file.data(), 100, false},
                                   {file.data() + 100, 1000, true},
                                   {file.data() + 1100, 100, false},
                                   {file.data() + 1200, 1000, true},
                                   {file.data() + 2200, 200, false}};
    uint64_t                   n_lockable = 10000;
    std::vector<size_t>        locked; // their offsets

    explicit scene(keeping how) { set_keeping(how); }
    ~scene() { set_keeping(keeping::off); }
    scene(const scene &)             = delete;
    scene & operator=(const scene &) = delete;

    uint64_t keep(uint64_t n_free) {
        locked.clear();
        return keep_common(all, n_free, [this](const uint8_t * p, size_t n) {
            const bool can = n <= n_lockable;
            n_lockable -= can ? n : 0;
            if (can) {
                locked.push_back(size_t(p - file.data()));
            }
            return can;
        });
    }
};

using offsets = std::vector<size_t>;

} // namespace

TEST(what_each_token_needs_is_locked_if_the_mixture_does_not_fit) {
    scene s(keeping::needed);
    CHECK_EQ(s.keep(2399), 400u);
    CHECK(s.locked == offsets({0, 1100, 2200}));
    CHECK_EQ(s.keep(2400), 0u); // it fits
    CHECK(s.locked.empty());
}

TEST(no_more_than_half_of_the_memory_is_locked) {
    scene s(keeping::needed);
    CHECK_EQ(s.keep(799), 0u);
    CHECK_EQ(s.keep(800), 400u);
}

TEST(of_a_model_without_experts_nothing_is_locked) {
    scene s(keeping::always);
    s.all = {{s.file.data(), 100, false}};
    CHECK_EQ(s.keep(1000), 0u);
    CHECK(s.locked.empty());
}

TEST(when_the_system_refuses_the_rest_stays_unlocked) {
    scene s(keeping::needed);
    s.n_lockable = 250;
    CHECK_EQ(s.keep(2000), 200u);
    CHECK(s.locked == offsets({0, 1100}));
}

TEST(it_is_off_unless_somebody_asks) {
    CHECK(keeping_now() == keeping::off);
    scene s(keeping::off);
    CHECK_EQ(s.keep(1000), 0u);
    set_keeping(keeping::always);
    CHECK_EQ(s.keep(100000), 400u); // although it fits
}
