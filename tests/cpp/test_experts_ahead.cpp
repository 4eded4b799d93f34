// Which experts are read ahead from a scripted disk, and when.
#include <algorithm>
#include <thread>
#include <vector>

#include "base/huge_page.h"
#include "check.h"
#include "cpu/experts_ahead.h"
#include "scripted_disk.h"

using namespace duo;
using namespace duo::cpu;
using duo_test::scripted_disk;

namespace {

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

TEST(a_piece_is_there_when_its_last_missing_page_is) {
    const size_t  n = page_size();
    scripted_disk disk(10 * n);
    disk.share(4 * n - 1);
    disk.allow(100);
    page_fetcher f(disk.system(), disk.clock());
    f.fetch(std::vector<page_fetcher::piece>{{disk.begin(), 4 * n}, {disk.begin() + 4 * n, n}}, 1);
    CHECK(disk.waited(2) == offsets({3 * n - 1, 5 * n - 1}));
    disk.share(7 * n - 1); // so it may have come at any time
    f.fetch(std::vector<page_fetcher::piece>{{disk.begin() + 6 * n, n}, {disk.begin() + 8 * n, n}}, 1);
    CHECK(disk.waited(3) == offsets({3 * n - 1, 5 * n - 1, 9 * n - 1}));
}

TEST(without_memory_an_order_is_dropped) {
    using pieces = std::vector<page_fetcher::piece>;
    scripted_disk disk(1000);
    page_fetcher  f(disk.system(), disk.clock());
    disk.allow(100000);
    disk.fail(1);
    f.fetch(pieces{{disk.begin(), 100}, {disk.begin() + 100, 100}}, 1);
    CHECK(disk.wanted(1) == offsets({0}));
    offsets found;
    for (uint64_t round = 2; found.empty(); ++round) { // those that come before it is dropped are, too
        f.fetch(pieces{{disk.begin() + 500, 100}}, round);
        std::this_thread::yield();
        found = disk.wanted(0);
    }
    CHECK_EQ(found.front(), 500u);
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

struct switched {
    explicit switched(foresight how) { set_foresight(how); }
    ~switched() { set_foresight(foresight::off); }
    switched(const switched &)             = delete;
    switched & operator=(const switched &) = delete;
};

// Three layers of a router, and of two weights with eight experts each, of which a row needs two.
struct mixture {
    static constexpr size_t  n_bytes  = 1000; // of a matrix
    static constexpr int32_t n_expert = 8;
    static constexpr size_t  n_layer  = 2 * n_expert * n_bytes;

    const switched needed{foresight::needed};
    scripted_disk  disk{3 * n_layer};
    page_reader    pages{disk.system()};
    experts_ahead  ahead{pages, disk.system(), disk.clock()};
    int            routers[3]{};
    int32_t        n_expert_of_first = n_expert;

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
                ahead.before_experts({.experts = chosen, .n_used = 2}, layer == 0 ? n_expert_of_first : n_expert);
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

// Bytes in a microsecond. A layer takes ten microseconds, in which ten matrices come, or one. An expert has two.
constexpr int64_t fast = mixture::n_bytes;
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
    using these    = std::vector<layer_expert>;
    const auto all = m.ahead.ordered();
    CHECK(these(all.begin(), all.end()) == these({{0, 2}, {0, 6}, {1, 2}, {1, 6}, {2, 2}, {2, 6}}));
    offsets found; // some of what was ordered before may be among these
    while (!has(found, m.at(0, 2)) || !has(found, m.at(2, 6))) {
        const offsets more = m.disk.wanted(1);
        found.insert(found.end(), more.begin(), more.end());
    }
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
}

TEST(what_the_next_layers_router_says_is_ordered) {
    mixture m(fast);
    m.learn();
    std::vector<float> says(8, 0.0f);
    says[2] = says[3]        = 1.0f;
    const auto ordered_after = [&](std::span<const float> scores) {
        const experts_ahead::row row{no_token, true};
        m.ahead.begin_pass({&row, 1});
        m.ahead.hear_router(1, scores);
        m.compute(0, m.experts_of(1));
        const auto all = m.ahead.ordered();
        return std::vector(all.begin(), all.end());
    };
    const auto said = [](const std::vector<layer_expert> & all) {
        return std::ranges::count(all, layer_expert{1, 2}) + std::ranges::count(all, layer_expert{1, 3});
    };
    CHECK_EQ(said(ordered_after(says)), 2);
    const auto without = ordered_after({});
    says.pop_back(); // of another number of experts
    CHECK(ordered_after(says) == without);
}

TEST(experts_that_a_layer_does_not_have_are_not_ordered) {
    mixture m(fast);
    m.n_expert_of_first = 4;
    m.learn();
    const std::vector<token_id> many(100, 1); // need all experts
    m.ahead.expect(many);
    const auto all = m.ahead.ordered();
    CHECK_EQ(std::ranges::count(all, 0, &layer_expert::layer), 4);
    CHECK_EQ(std::ranges::count(all, 1, &layer_expert::layer), 5); // as many as come in its time
}
