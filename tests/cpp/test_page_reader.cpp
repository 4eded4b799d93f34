// Which pages of mapped weights are asked for, and when.
#include <map>
#include <vector>

#include "check.h"
#include "cpu/page_reader.h"

using namespace duo::cpu;

namespace {

// Layers of two dense matrices and two weights of four experts, in a mapped file. Nothing is read: what is asked for is
// noted as (offset, bytes).
struct scene {
    static constexpr size_t n_bytes = 100; // of a matrix
    static constexpr size_t n_layer = 10 * n_bytes;

    std::vector<uint8_t>                   file   = std::vector<uint8_t>(2 * n_layer);
    std::vector<uint8_t>                   memory = std::vector<uint8_t>(n_bytes); // not mapped
    std::vector<std::pair<size_t, size_t>> wanted;
    bool                                   in_memory = false;
    uint64_t                               n_read    = 7; // what the process has read before does not count
    int                                    n_asked   = 0; // whether a page is in memory
    int                                    routers[2]{};

    page_reader reader{page_system{
        .is_mapped = [this](const uint8_t * p) { return p >= file.data() && p < file.data() + file.size(); },
        .in_memory =
            [this](const uint8_t *) {
                ++n_asked;
                return in_memory;
            },
        .want   = [this](const uint8_t * p, size_t n) { wanted.emplace_back(size_t(p - file.data()), n); },
        .n_read = [this] { return n_read; }}};

    // A round over all products, of which the given experts are chosen. What each product asked for.
    std::vector<std::vector<size_t>> round(const std::vector<int32_t> & chosen) {
        std::vector<std::vector<size_t>> out;
        for (size_t layer = 0; layer < 2; ++layer) {
            const uint8_t * at = file.data() + layer * n_layer;
            for (size_t i = 0; i < 2; ++i) {
                reader.before_matrix(at + i * n_bytes, n_bytes);
                out.push_back(taken());
            }
            for (size_t i = 0; i < 2; ++i) {
                reader.before_experts(at + (2 + 4 * i) * n_bytes, n_bytes, &routers[layer], chosen);
                out.push_back(taken());
            }
            reader.before_matrix(memory.data(), n_bytes);
            CHECK(wanted.empty());
        }
        return out;
    }

    // Numbers of matrices in the file.
    std::vector<size_t> taken() {
        std::vector<size_t> out;
        for (const auto & [offset, n] : std::exchange(wanted, {})) {
            CHECK_EQ(n, n_bytes);
            out.push_back(offset / n_bytes);
        }
        return out;
    }
};

using asked = std::vector<std::vector<size_t>>;

} // namespace

TEST(a_first_pass_asks_for_each_product_that_is_not_in_memory) {
    scene s;
    CHECK(s.round({1, 3}) == asked({{0}, {1}, {3, 5}, {7, 9}, {10}, {11}, {13, 15}, {17, 19}}));
    scene t;
    t.in_memory = true;
    CHECK(t.round({1, 3}) == asked(8));
    CHECK_EQ(t.n_asked, 8); // once for each weight
    t.round({0});
    CHECK_EQ(t.n_asked, 8);
}

TEST(later_passes_ask_for_a_layers_experts_at_once_and_for_dense_matrices_ahead) {
    scene s;
    s.round({1, 3});
    s.n_read += 8;
    const asked want({{0, 1, 10, 11}, {}, {2, 6}, {}, {}, {}, {12, 16}, {}});
    CHECK(s.round({0}) == want);
    s.n_read += 8;
    CHECK(s.round({0}) == want); // each pass anew: pages may have gone
}

TEST(passes_that_read_nothing_ask_for_nothing) {
    scene s;
    s.in_memory = true;
    s.round({0, 1});
    for (int i = 0; i < 3; ++i) {
        CHECK(s.round({0, 1}) == asked(8));
    }
    s.n_read += 1; // a page fault
    CHECK(s.round({2}) != asked(8));
    int n = 1;
    while (s.round({2}) != asked(8)) {
        ++n;
        CHECK(n < 100);
    }
    CHECK_EQ(n, 16);
    s.n_read += 1;
    CHECK(s.round({2}) != asked(8));
}

TEST(only_what_was_computed_is_asked_for) {
    scene      s; // the second layer is on another device
    const auto pass = [&s](const std::vector<int32_t> & chosen) {
        s.reader.before_matrix(s.file.data(), scene::n_bytes);
        s.reader.before_experts(s.file.data() + 2 * scene::n_bytes, scene::n_bytes, &s.routers[0], chosen);
        return s.taken();
    };
    pass({0});
    s.n_read += 1;
    CHECK(pass({1, 2}) == std::vector<size_t>({0, 3, 4}));
}
