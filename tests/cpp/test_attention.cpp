// Attention of csrc/cpu against double precision, and that a row's bits depend on nothing but the row and what it sees.
#include "attention_scene.h"

#include <limits>
#include <numeric>

using namespace duo_test;

TEST(attention_is_that_of_double_precision) {
    std::mt19937 rng(1);
    for (const kernel_set * kernels : kernels_here()) {
        for (const int64_t columns : {16, 32, 48, 64, 80, 128, 192}) {
            for (const int64_t n_cells : {5, 16, 33, 200}) {
                scene s(columns, columns, n_cells, 5, 6, 2, rng);
                s.check_against_exact(*kernels);
            }
        }
        scene(192, 128, 70, 19, 4, 4, rng).check_against_exact(*kernels);
        scene(64, 32, 70, 3, 20, 1, rng).check_against_exact(*kernels);
        scene(32, 32, 70, 3, 40, 40, rng).check_against_exact(*kernels);
    }
}

TEST(attention_knows_sinks_biases_and_caps) {
    std::mt19937 rng(2);
    for (const kernel_set * kernels : kernels_here()) {
        scene s(32, 32, 90, 7, 6, 3, rng);
        s.sinks = {0.5f, -1.0f, 3.0f, 0.0f, 1.0f, -20.0f};
        s.check_against_exact(*kernels);
        s.sinks.clear();
        s.softcap = 2.0f;
        s.check_against_exact(*kernels);
        s.softcap  = 0;
        s.max_bias = 8.0f;
        for (size_t i = 0; i < s.mask.size(); ++i) { // distances, as llama.cpp writes them for ALiBi
            s.mask[i] = s.mask[i] == unseen ? unseen : half_of(-float(i % 90));
        }
        s.check_against_exact(*kernels);
        s.max_bias = 0;
        s.mask.clear(); // everything is seen
        s.check_against_exact(*kernels);
    }
}

TEST(a_rows_attention_has_the_same_bits_at_every_width_and_with_every_team) {
    std::mt19937 rng(3);
    for (const kernel_set * kernels : kernels_here()) {
        struct {
            int64_t heads, kv_heads, tokens;
        } shapes[] = {{6, 1, 70}, {6, 2, 70}, {6, 6, 70}, {40, 40, 7}, {38, 19, 7}}; // more heads than one piece holds
        for (const auto & shape : shapes) {
            scene s(48, 48, 150, shape.tokens, shape.heads, shape.kv_heads, rng);
            for (int64_t h = 0; h < shape.heads; ++h) {
                s.sinks.push_back(float(h % 5) - 2);
            }
            const std::vector<float> alone = s.run(*kernels, 1, 1);
            for (const int64_t width : {2, 3, 5, 16, 64, 70}) {
                for (const int n_threads : {1, 2, 5}) {
                    CHECK(s.run(*kernels, width, n_threads) == alone);
                }
            }
        }
    }
}

TEST(threads_that_share_a_long_context_find_the_bits_of_one_alone) {
    std::mt19937      rng(6);
    constexpr int64_t n_cells = 6200;
    for (const kernel_set * kernels : kernels_here()) {
        struct {
            int64_t heads, kv_heads, n_k, n_v;
        } shapes[] = {{8, 4, 48, 16}, {3, 3, 16, 32}};
        for (const auto & shape : shapes) {
            scene              s(shape.n_k, shape.n_v, n_cells, 3, shape.heads, shape.kv_heads, rng);
            std::vector<float> out(size_t(s.n_tokens * s.n_heads * s.n_v));
            CHECK(attends_together(s.task(out, 0, 3), 3));
            s.check_against_exact(*kernels);
            const auto same_bits = [&] {
                const std::vector<float> alone = s.run(*kernels, 1, 1);
                CHECK(s.run(*kernels, 1, 3) == alone);
                CHECK(s.run(*kernels, 2, 2) == alone);
                CHECK(s.run(*kernels, 3, 3) == alone);
            };
            s.sinks.assign(size_t(shape.heads), 0.5f);
            std::fill_n(s.mask.begin() + n_cells, n_cells, unseen); // the second token sees nothing
            same_bits();
            s.sinks.clear();
            s.order.resize(n_cells);
            std::iota(s.order.rbegin(), s.order.rend(), 0);
            s.softcap  = 2.0f;
            s.max_bias = 8.0f;
            for (size_t c = 0; c < s.mask.size(); ++c) {
                s.mask[c] = s.mask[c] == unseen ? unseen : half_of(-float(c % n_cells));
            }
            same_bits();
            s.mask.clear();
            same_bits();
        }
    }
}

TEST(threads_share_a_context_only_where_it_is_long_and_has_work_for_all) {
    std::mt19937       rng(7);
    constexpr int64_t  n_cells = 6200;
    std::vector<float> out(1 << 16);
    const auto         together = [&](const scene & s, int n_threads) {
        return attends_together(s.task(out, 0, s.n_tokens), n_threads);
    };
    scene s(16, 16, n_cells, 7, 8, 4, rng);
    CHECK(together(s, 2) && together(s, 3));
    CHECK(!together(s, 1) && !together(s, 4));                   // too few cells
    CHECK(!together(scene(16, 16, n_cells, 2, 4, 2, rng), 3));   // too few columns
    CHECK(!together(scene(16, 64, n_cells, 2, 4, 1, rng), 2));   // one key head
    CHECK(!together(scene(16, 16, n_cells, 2, 70, 70, rng), 2)); // too many heads
    CHECK(!together(scene(16, 16, n_cells, 9, 20, 10, rng), 2)); // too many rows
    s.texts = {0, 0, 0, 0, 0, 0, 0};
    CHECK(together(s, 2));
    s.texts.back() = 1;
    CHECK(!together(s, 2));
}

TEST(an_infinity_reaches_only_the_tokens_that_see_it) {
    std::mt19937 rng(8);
    for (const kernel_set * kernels : kernels_here()) {
        for (const int64_t n_cells : {40, 6200}) {
            scene s(32, 32, n_cells, 5, 4, 2, rng);
            for (size_t t = 0; t < 5; ++t) { // token t sees the cells up to n_cells - 5 + t
                for (size_t c = size_t(n_cells) - 5; c < size_t(n_cells); ++c) {
                    s.mask[t * size_t(n_cells) + c] = c <= size_t(n_cells) - 5 + t ? 0 : unseen;
                }
            }
            const size_t cell              = size_t(n_cells - 2) * 2 * 32; // seen by the last two tokens
            s.k[cell]                      = 0x7e00;                       // not a number
            s.v[cell + 40]                 = 0x7c00;                       // infinity, for the other head
            const std::vector<float> alone = s.run(*kernels, 1, 1);
            for (size_t i = 0; i < alone.size(); ++i) {
                CHECK(i >= size_t(3 * 4 * 32) || std::isfinite(alone[i]));
            }
            CHECK(std::isnan(alone[4 * 4 * 32]) && std::isinf(alone[4 * 4 * 32 + 2 * 32 + 8]));
            for (const int n_threads : {1, 2, 3}) {
                const std::vector<float> got = s.run(*kernels, 5, n_threads);
                CHECK(std::memcmp(got.data(), alone.data(), got.size() * sizeof(float)) == 0);
            }
        }
    }
}

TEST(masked_cells_may_hold_anything_and_stand_anywhere) {
    std::mt19937 rng(4);
    for (const kernel_set * kernels : kernels_here()) {
        const scene        s(32, 32, 40, 3, 2, 1, rng);
        std::vector<float> before = s.run(*kernels, 3, 1);

        // The same cells further apart, infinities and NaN between them.
        scene far(32, 32, 120, 3, 2, 1, rng);
        far.q = s.q;
        std::fill(far.k.begin(), far.k.end(), uint16_t(0x7e00));
        std::fill(far.v.begin(), far.v.end(), uint16_t(0x7c00));
        std::fill(far.mask.begin(), far.mask.end(), unseen);
        for (size_t c = 0; c < 40; ++c) {
            std::copy_n(s.k.begin() + ptrdiff_t(c * 32), 32, far.k.begin() + ptrdiff_t(3 * c * 32));
            std::copy_n(s.v.begin() + ptrdiff_t(c * 32), 32, far.v.begin() + ptrdiff_t(3 * c * 32));
            for (size_t t = 0; t < 3; ++t) {
                far.mask[t * 120 + 3 * c] = s.mask[t * 40 + c];
            }
        }
        CHECK(far.run(*kernels, 3, 2) == before);
    }
}

TEST(a_row_that_sees_nothing_is_zero_and_not_a_number_goes_through) {
    std::mt19937 rng(5);
    for (const kernel_set * kernels : kernels_here()) {
        scene s(32, 32, 40, 2, 2, 1, rng);
        std::fill_n(s.mask.begin(), 40, unseen);
        s.q.back()                   = std::numeric_limits<float>::quiet_NaN();
        const std::vector<float> out = s.run(*kernels, 2, 1);
        for (size_t i = 0; i < out.size(); ++i) {
            CHECK(i < 64 ? out[i] == 0 : i >= 96 ? std::isnan(out[i]) : std::isfinite(out[i]));
        }
    }
}
