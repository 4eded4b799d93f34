// The tile registers in plain C++ against Intel's manual.
#include <functional>
#include <initializer_list>
#include <stdexcept>
#include <utility>

#include "check.h"
#include "cpu/tile_machine.h"
#include "tile_shapes.h"

using namespace duo::cpu;

namespace {

using tiles = tile_machine;

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

} // namespace

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
