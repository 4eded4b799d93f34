// Kernels on tile registers: the emulation itself, the same bits as without tiles, and the code for AMX, which runs
// where the machine has it and is trapped instruction by instruction where it has not.
#include <functional>

#include "check.h"
#include "cpu/amx.h"
#include "weights.h"

#if defined(DUO_X86)
#include "cpu/tile_emulated.h"
#endif
#if defined(DUO_AMX) && defined(__linux__)
#include "tile_trap.h"
#endif

using namespace duo::cpu;

namespace {

#if defined(DUO_X86)

using tiles = emulated_tiles;

tile_config config_of(std::initializer_list<std::pair<int, int>> shapes) {
    tile_config c{};
    c.palette = 1;
    int i     = 0;
    for (const auto & [rows, n] : shapes) {
        c.rows[i]      = uint8_t(rows);
        c.n_bytes[i++] = uint16_t(n);
    }
    return c;
}

bool refused(const std::function<void()> & f) {
    try {
        f();
    } catch (const std::logic_error &) {
        return true;
    }
    return false;
}

uint16_t bf16(float f) {
    uint32_t bits;
    std::memcpy(&bits, &f, 4);
    return uint16_t(bits >> 16);
}

bool same_bits(const std::vector<float> & a, const std::vector<float> & b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Sets with tiles that can run here, each with the set that it must equal.
std::vector<std::pair<const kernel_set *, const kernel_set *>> sets_with_tiles() {
    std::vector<std::pair<const kernel_set *, const kernel_set *>> all;
    for (const auto & [name, narrow] :
         {std::pair{"amx", "avx512"}, {"amx_emulated", "avx512"}, {"amx_portable", "portable"}}) {
        if (const kernel_set * k = kernels_named(name); k != nullptr) {
            all.emplace_back(k, kernels_named(narrow));
        }
    }
    return all;
}

#endif

} // namespace

#if defined(DUO_X86)

TEST(an_emulated_tile_is_used_as_its_shape_says) {
    uint8_t bytes_in[16 * 64];
    for (int i = 0; i < 16 * 64; ++i) {
        bytes_in[i] = uint8_t(i * 7);
    }
    uint8_t out[16 * 64] = {};
    tiles::configure(config_of({{3, 20}, {16, 64}}));
    tiles::load(0, bytes_in, 40);
    tiles::store(0, out, 64);
    for (int i = 0; i < 16 * 64; ++i) {
        CHECK_EQ(int(out[i]), i / 64 < 3 && i % 64 < 20 ? int(bytes_in[i / 64 * 40 + i % 64]) : 0);
    }
    tile_config now{};
    tiles::save(now);
    const tile_config is = config_of({{3, 20}, {16, 64}});
    CHECK(std::memcmp(&now, &is, sizeof now) == 0);
    tiles::configure(is); // clears what the tiles hold
    tiles::store(0, out, 64);
    CHECK_EQ(int(out[0]) | int(out[19]), 0);
    tiles::configure(tile_config{});
    tiles::save(now);
    CHECK_EQ(int(now.palette) + int(now.rows[0]), 0);
}

TEST(an_emulated_tile_faults_where_a_processor_does) {
    float      f[256] = {};
    const auto with   = [&](const tile_config & c, auto use) {
        return refused([&] {
            tiles::configure(c);
            use();
        });
    };
    const auto nothing = [] {};
    CHECK(with(tile_config{}, [&] { tiles::zero(0); }));
    CHECK(with(config_of({{4, 64}}), [&] { tiles::load(1, f, 64); }));
    CHECK(with(config_of({{17, 64}}), nothing));
    CHECK(with(config_of({{16, 68}}), nothing));
    CHECK(with(config_of({{0, 64}}), nothing));
    CHECK(with(config_of({{4, 62}}), [&] { tiles::load(0, f, 64); }));
    tile_config other = config_of({{4, 64}});
    other.palette     = 2;
    CHECK(with(other, nothing));
    other             = config_of({{4, 64}});
    other.reserved[3] = 1;
    CHECK(with(other, nothing));
    // Sums of 4 x 16 take inputs of 4 x 8 and weights of 2 x 16.
    const auto good = config_of({{4, 64}, {4, 8}, {2, 64}});
    CHECK(!with(good, [&] { tiles::dot_codes(0, 1, 2); }));
    CHECK(with(good, [&] { tiles::dot_codes(0, 2, 1); }));
    CHECK(with(good, [&] { tiles::dot_codes(0, 1, 1); }));
    CHECK(with(config_of({{4, 64}, {3, 8}, {2, 64}}), [&] { tiles::dot_codes(0, 1, 2); }));
    CHECK(with(config_of({{4, 64}, {4, 8}, {3, 64}}), [&] { tiles::dot_bf16(0, 1, 2); }));
    CHECK(with(config_of({{4, 60}, {4, 8}, {2, 64}}), [&] { tiles::dot_bf16(0, 1, 2); }));
    tiles::configure(tile_config{});
}

TEST(an_emulated_product_of_codes) {
    const int8_t x[2][8]    = {{1, -2, 3, -128, 127, 0, 0, 5}, {0, 0, 0, 0, -1, -1, -1, -1}};
    int8_t       w[2][64]   = {};
    int32_t      sum[2][16] = {{10, 0, 0}, {0, INT32_MAX, 0}};
    for (int i = 0; i < 64; ++i) {
        w[0][i] = int8_t(i - 32);
        w[1][i] = int8_t(i % 4 - 128);
    }
    int32_t want[2][16];
    for (int m = 0; m < 2; ++m) {
        for (int n = 0; n < 16; ++n) {
            int64_t s = sum[m][n];
            for (int k = 0; k < 8; ++k) {
                s += x[m][k] * w[k / 4][4 * n + k % 4];
            }
            want[m][n] = int32_t(uint32_t(s)); // wraps
        }
    }
    tiles::configure(config_of({{2, 64}, {2, 8}, {2, 64}}));
    tiles::load(0, sum, 64);
    tiles::load(1, x, 8);
    tiles::load(2, w, 64);
    tiles::dot_codes(0, 1, 2);
    tiles::store(0, sum, 64);
    tiles::configure(tile_config{});
    CHECK(std::memcmp(sum, want, sizeof sum) == 0);
}

TEST(an_emulated_product_of_bf16_rounds_as_the_manual_says) {
    // Even and odd products are added up apart, from zero; then both to each other, then to the sum.
    const float    big      = 16777216.0f; // 2^24: adding 1 is lost, adding 2 is not
    const uint16_t x[4]     = {bf16(1), bf16(1), bf16(1), bf16(1)};
    uint16_t       w[2][32] = {};
    w[0][0]                 = bf16(big); // even: big + 1 = big
    w[1][0]                 = bf16(1);
    w[0][1]                 = bf16(1); // odd: 1 + 1 = 2, so big + 2 in the end
    w[1][1]                 = bf16(1);
    w[0][2]                 = 1; // a denormal is zero
    w[0][4]                 = bf16(1.0f);
    float sum[16]           = {-big, 5, big};
    tiles::configure(config_of({{1, 64}, {1, 8}, {2, 64}}));
    tiles::load(0, sum, 64);
    tiles::load(1, x, 8);
    tiles::load(2, w, 64);
    tiles::dot_bf16(0, 1, 2);
    tiles::store(0, sum, 64);
    CHECK_EQ(sum[0], 2.0f);
    CHECK_EQ(sum[1], 5.0f);
    CHECK_EQ(sum[2], big); // ties go to even
    const uint16_t small[4] = {bf16(0x1p-100f), 0, 0, 0};
    w[0][0]                 = bf16(0x1p-40f); // the product is a denormal, and so zero
    tiles::zero(0);
    tiles::load(1, small, 8);
    tiles::load(2, w, 64);
    tiles::dot_bf16(0, 1, 2);
    tiles::store(0, sum, 64);
    tiles::configure(tile_config{});
    CHECK_EQ(sum[0], 0.0f);
}

TEST(tiles_give_the_bits_that_are_given_without_them) {
    std::mt19937 rng(11);
    for (const auto & [with, without] : sets_with_tiles()) {
        for (const format f : formats) {
            if (f == format::bf16) {
                continue; // rounds in its own way, at every width: see test_cpu_kernels
            }
            for (const int64_t k : traits_of(f).n_unit == 256 ? std::vector<int64_t>{256, 1280}
                                                              : std::vector<int64_t>{64, 192, 320, 1472}) {
                for (const int64_t n : {1, 33, 270}) {
                    const problem p(f, n, k, 40, false, rng);
                    for (int width = 1; width <= 40; width += width < 18 ? 1 : 7) {
                        REQUIRE(same_bits(p.run(*with, 0, width, width % 5 == 0 ? 2 : 1), p.run(*without, 0, width, 1)),
                                std::string(with->name) + " " + traits_of(f).name + " k " + std::to_string(k) + " n " +
                                    std::to_string(n) + " width " + std::to_string(width));
                    }
                }
            }
        }
    }
}

TEST(prompts_by_tiles) {
    std::mt19937 rng(12);
    for (const auto & [with, without] : sets_with_tiles()) {
        for (const format f : formats) {
            for (const int n : check::cases({64, 127, 200, 512})) {
                const problem            p(f, 50, 512, n, false, rng);
                const std::vector<float> y = p.run(*with, 0, n, 3);
                if (f == format::bf16) { // the columns one by one
                    for (int c = 0; c < n; c += 37) {
                        REQUIRE(same_bits(p.run(*with, c, 1, 1), {y.begin() + c * 50, y.begin() + (c + 1) * 50}));
                    }
                } else {
                    REQUIRE(same_bits(y, p.run(*without, 0, n, 1)));
                }
            }
        }
    }
}

TEST(experts_with_few_and_many_inputs_by_tiles) {
    std::mt19937 rng(13);
    for (const auto & [with, without] : sets_with_tiles()) {
        for (const format f : formats) {
            const problem      p(f, 48, 512, 64, false, rng);
            std::vector<float> y(64 * 48, NAN);
            std::vector<job>   jobs;
            int                from = 0;
            for (const int n : {3, 1, 40, 9, 11}) {
                job j{p.packed.data(), {}};
                for (int c = from; c < from + n; ++c) {
                    j.columns.push_back({p.x.data() + c * 512, y.data() + c * 48});
                }
                jobs.push_back(std::move(j));
                from += n;
            }
            workspace memory;
            for (const bool prepared : {false, true}) {
                std::fill(y.begin(), y.end(), NAN);
                multiply(*with, p.s, jobs, 2, memory, prepared);
                CHECK(same_bits(y, p.run(f == format::bf16 ? *with : *without, 0, 64, 1)), traits_of(f).name);
            }
        }
    }
}

TEST(what_others_made_of_the_tile_registers_comes_back) {
    // ggml configures a thread once and never again.
    std::mt19937 rng(14);
    const auto   theirs = config_of({{8, 64}, {8, 64}, {16, 32}, {16, 32}, {16, 64}, {16, 64}, {16, 64}, {16, 64}});
    for (const auto & [with, without] : sets_with_tiles()) {
        for (const tile_config & before : {theirs, tile_config{}}) {
            with->wide->load(before);
            problem(format::q4_k, 40, 512, 9, false, rng).run(*with, 0, 9, 2);
            problem(format::bf16, 40, 512, 2, false, rng).run(*with, 0, 2, 1);
            tile_config after{};
            with->wide->save(after);
            CHECK(std::memcmp(&before, &after, sizeof before) == 0, with->name);
        }
    }
}

#endif

#if defined(DUO_AMX) && defined(__linux__)

TEST(the_code_for_amx_trapped_where_there_is_none) {
    const kernel_set * emulated = kernels_named("amx_emulated");
    if (may_use_amx() || emulated == nullptr) {
        std::printf("skipped: %s\n", emulated == nullptr ? "no AVX-512 here" : "this machine has AMX");
        return;
    }
    kernel_set amx = *emulated;
    amx.wide       = &wide_amx;
    std::mt19937 rng(15);
    for (const format f : formats) {
        for (const int64_t k : {256, 1280}) {
            const problem p(f, 40, k, 33, false, rng);
            for (const int width : {1, 4, 5, 8, 9, 16, 17, 31, 33}) {
                const std::vector<float> want = p.run(*emulated, 0, width, 1);
                std::vector<float>       got;
                int64_t                  n_trapped = 0;
                {
                    tile_trap trap;
                    got       = p.run(amx, 0, width, 1 + width % 2);
                    n_trapped = tile_trap::count();
                }
                REQUIRE(same_bits(got, want),
                        std::string(traits_of(f).name) + " k " + std::to_string(k) + " width " + std::to_string(width));
                CHECK_EQ(n_trapped > 0, amx.is_wide(f, width));
            }
        }
    }
}

#endif
