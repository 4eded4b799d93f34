// A draft's weights as 4 bits, and products that compute some rows only.
#include <atomic>
#include <cmath>

#include "check.h"
#include "cpu/kernel.h"
#include "cpu/quantise.h"
#include "cpu/team.h"
#include "weights.h"

using namespace duo::cpu;

namespace {

constexpr format four_bits[] = {format::q4_0, format::iq4_nl};

std::vector<float> gaussian_row(int64_t n, std::mt19937 & rng) {
    std::normal_distribution<float> normal;
    std::vector<float>              x(static_cast<size_t>(n));
    for (float & f : x) {
        f = 0.02f * normal(rng);
    }
    return x;
}

bytes quantised_row(format f, const std::vector<float> & x) {
    bytes out(x.size() / 32 * 18);
    quantise_row(f, x.data(), int64_t(x.size()), out.data());
    return out;
}

} // namespace

TEST(half_precision_gives_every_number_back) {
    for (uint32_t h = 0; h < 0x10000; ++h) {
        const uint8_t b[2] = {uint8_t(h), uint8_t(h >> 8)};
        const float   f    = float_of_half(b);
        if (std::isnan(f)) {
            REQUIRE((half_of_float(f) & 0x7fff) > 0x7c00);
        } else {
            REQUIRE(half_of_float(f) == h);
        }
    }
    CHECK(half_of_float(65519.0f) == 0x7bff && half_of_float(65520.0f) == 0x7c00 && half_of_float(-1e9f) == 0xfc00);
    CHECK(half_of_float(1.0f + 0x1p-11f) == 0x3c00 && half_of_float(1.0f + 3 * 0x1p-11f) == 0x3c02); // ties to even
}

// ggml's reference for Q4_0, which tries one scale, loses 0.9% of a Gaussian row's squares.
TEST(four_bits_lose_less_than_a_hundredth_of_a_rows_squares_with_each_instruction_set) {
    std::mt19937             rng(1);
    const std::vector<float> x = gaussian_row(32 * 500, rng); // no multiple of 16 blocks
    for (const kernel_set * kernels : kernels_here()) {
        for (const format f : four_bits) {
            bytes file(500 * 18 + 1, 0xa5);
            kernels->quantise(f, x.data(), 500, file.data());
            CHECK(file.back() == 0xa5);
            const std::vector<double> y    = weights_of(f, file.data(), int64_t(x.size()));
            double                    lost = 0;
            double                    all  = 0;
            for (size_t i = 0; i < x.size(); ++i) {
                lost += std::pow(double(x[i]) - y[i], 2);
                all += double(x[i]) * double(x[i]);
            }
            CHECK(lost / all < 0.008 && lost / all > 0.003);
        }
    }
}

TEST(weights_that_have_four_bits_already_stay) {
    std::mt19937 rng(2);
    for (const format f : four_bits) {
        bytes row = random_rows(f, 1, 32 * 100, rng);
        for (size_t i = 0; i < row.size(); i += 18) {
            row[i + 2] = uint8_t(row[i + 2] & 0xf0); // the outermost value occurs
        }
        const std::vector<double> w = weights_of(f, row.data(), 32 * 100);
        const std::vector<float>  x(w.begin(), w.end());
        const std::vector<double> y = weights_of(f, quantised_row(f, x).data(), 32 * 100);
        for (size_t i = 0; i < w.size(); ++i) {
            REQUIRE(std::fabs(w[i] - y[i]) <= 1e-3 * std::fabs(w[i]));
        }
    }
}

// Zeros, tiny, huge and broken numbers among Gaussian ones; 33 blocks are two groups and a part of one.
TEST(each_instruction_set_gives_the_same_bits) {
    std::mt19937       rng(5);
    std::vector<float> x = gaussian_row(32 * 33, rng);
    std::fill_n(x.begin() + 32, 32, 0.0f);
    for (size_t i = 64; i < 96; ++i) {
        x[i] *= 1e-36f;
    }
    x[96]   = INFINITY;
    x[130]  = -INFINITY;
    x[161]  = NAN;
    x[200]  = 1e20f;
    x[1055] = NAN; // the last one
    for (const format f : four_bits) {
        bytes want(33 * 18);
        kernels_portable.quantise(f, x.data(), 33, want.data());
        for (const kernel_set * kernels : kernels_here(true)) {
            bytes got(33 * 18);
            kernels->quantise(f, x.data(), 33, got.data());
            CHECK(got == want, kernels->name);
        }
        const std::vector<double> y = weights_of(f, want.data(), int64_t(x.size()));
        for (const size_t block : {3, 4, 5, 32}) {
            REQUIRE(std::isnan(y[32 * block]));
        }
    }
}

TEST(blocks_of_zeros_tiny_and_broken_numbers) {
    for (const format f : four_bits) {
        std::vector<float> x(96, 0.0f);
        x[40]                       = 1e-38f;
        x[70]                       = INFINITY;
        x[71]                       = 1.0f;
        const std::vector<double> y = weights_of(f, quantised_row(f, x).data(), 96);
        for (size_t i = 0; i < 64; ++i) {
            REQUIRE(y[i] == 0.0);
        }
        for (size_t i = 64; i < 96; ++i) {
            REQUIRE(std::isnan(y[i]));
        }
    }
}

TEST(rows_are_converted_while_they_are_packed) {
    std::mt19937 rng(3);
    for (const format f : four_bits) {
        for (const int64_t n : {1, 16, 81, 300}) {
            constexpr int64_t  k = 1088;
            const matrix_shape s{f, n, k};
            std::vector<float> all;
            bytes              file;
            for (int64_t row = 0; row < n; ++row) {
                const std::vector<float> x = gaussian_row(k, rng);
                const bytes              q = quantised_row(f, x);
                REQUIRE(q.size() == file_row(s));
                all.insert(all.end(), x.begin(), x.end());
                file.insert(file.end(), q.begin(), q.end());
            }
            const convert_fn convert = [f](const uint8_t * from, uint8_t * to, float * scratch) {
                std::memcpy(scratch, from, k * sizeof(float));
                quantise_row(f, scratch, k, to);
            };
            bytes want(s.bytes());
            pack_matrices(s, 1, file.data(), file_row(s), want.data(), 1);
            for (const int n_threads : {1, 3}) {
                bytes got(s.bytes());
                pack_matrices(s, 1, reinterpret_cast<const uint8_t *>(all.data()), k * sizeof(float), got.data(),
                              n_threads, convert);
                CHECK(got == want);
            }
        }
    }
}

// Experts may have fewer panels than the team has members.
TEST(a_team_shares_the_panels_of_all_matrices) {
    std::mt19937       rng(5);
    constexpr int64_t  n = 21, k = 512;
    constexpr int64_t  n_matrices = 64; // more than is left to one thread
    const matrix_shape s{format::q4_0, n, k};
    const size_t       n_row = file_row(s);
    bytes              file;
    while (file.size() < size_t(n_matrices * n) * n_row) {
        const bytes q = quantised_row(s.f, gaussian_row(k, rng));
        file.insert(file.end(), q.begin(), q.end());
    }
    bytes want(size_t(n_matrices) * s.bytes());
    for (size_t m = 0; m < size_t(n_matrices); ++m) {
        pack_matrices(s, 1, file.data() + m * size_t(n) * n_row, n_row, want.data() + m * s.bytes(), 1);
    }
    constexpr int    n_team = 5;
    std::atomic<int> members[n_team];
    const convert_fn note = [&](const uint8_t * from, uint8_t * to, float *) {
        ++members[member_here()];
        std::copy_n(from, n_row, to);
    };
    for (const bool converts : {false, true}) {
        bytes got(want.size());
        pack_matrices(s, n_matrices, file.data(), n_row, got.data(), n_team, converts ? note : convert_fn());
        CHECK(got == want);
    }
    const team_size five(n_team);
    for (int i = 0; i < threads_here(); ++i) { // one without OpenMP
        CHECK(members[i] > 0, std::to_string(i));
    }
}

TEST(some_rows_have_the_bits_of_all_rows_and_the_others_stay) {
    std::mt19937 rng(4);
    for (const format f : {format::q4_0, format::q8_0, format::q4_k, format::f16}) {
        constexpr int64_t      n = 16 * 43 + 5;
        const problem          p(f, n, 512, 9, false, rng);
        std::vector<panel_run> runs;
        std::vector<bool>      in(n);
        for (int64_t panel = 0; panel < p.s.panels(); ++panel) {
            if (rng() % 3 == 0) {
                runs.push_back({panel / n_panels, int(panel % n_panels), int(panel % n_panels) + 1});
                for (int64_t row = 16 * panel; row < std::min(n, 16 * (panel + 1)); ++row) {
                    in[size_t(row)] = true;
                }
            }
        }
        runs.push_back({0, 0, n_panels}); // a whole block; some of its rows twice
        std::fill_n(in.begin(), 16 * n_panels, true);
        for (const kernel_set * kernels : kernels_here()) {
            for (const int width : {1, 4, 9}) {
                const std::vector<float> want = p.run(*kernels, 0, width, 1);
                for (const int n_threads : {1, 2}) {
                    std::vector<float> y(size_t(width * n), -7.0f);
                    job                j{p.packed.data(), {}, runs};
                    for (int i = 0; i < width; ++i) {
                        j.columns.push_back({p.x.data() + i * p.s.k, y.data() + i * n});
                    }
                    workspace memory;
                    multiply(*kernels, p.s, {j}, n_threads, memory, false);
                    for (size_t i = 0; i < y.size(); ++i) {
                        REQUIRE(in[i % n] ? y[i] == want[i] : y[i] == -7.0f);
                    }
                }
            }
        }
    }
}
