// The kernels of csrc/cpu against sums in double precision of the weights as GGUF defines them.
#include <array>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>

#include "check.h"
#include "cpu/evict.h"
#include "cpu/team.h"
#include "weights.h"

using namespace duo::cpu;

// A product in double precision, and the sum of its terms' sizes.
struct exact {
    double value = 0;
    double size  = 0;
};

// [input][row]
std::vector<exact> exact_products(const problem & p) {
    std::vector<exact> out(size_t(p.n_x * p.s.n));
    for (int64_t row = 0; row < p.s.n; ++row) {
        const std::vector<double> w = weights_of(p.s.f, p.file.data() + size_t(row) * p.row_bytes, p.s.k);
        for (int c = 0; c < p.n_x; ++c) {
            exact & e = out[size_t(c * p.s.n + row)];
            for (int64_t i = 0; i < p.s.k; ++i) {
                const double term = w[size_t(i)] * double(p.x[size_t(c * p.s.k + i)]);
                e.value += term;
                e.size += std::fabs(term);
            }
        }
    }
    return out;
}

// All that can run here, those too that must be named to be chosen.
std::vector<const kernel_set *> kernels_to_test() {
    std::vector<const kernel_set *>       all   = kernels_here();
    const std::vector<const kernel_set *> named = kernels_here(true);
    all.insert(all.end(), named.begin(), named.end());
    return all;
}

// With sanitizers the wide ones would take minutes.
const std::vector<int> widths = check::sanitized ? std::vector<int>{1, 2, 3, 4, 5, 8, 9}
                                : check::scale() <= 1.0
                                    ? std::vector<int>{1, 2, 3, 4, 5, 7, 8, 9, 16, 17}
                                    : std::vector<int>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17};

// Panels with a rest, and for short rows more than one piece for each thread.
std::vector<int64_t> heights(bool short_rows) {
    return short_rows && !check::sanitized ? std::vector<int64_t>{1, 17, 80} : std::vector<int64_t>{1, 33};
}

TEST(products_are_those_of_double_precision) {
    using sizes = std::vector<int64_t>;
    std::mt19937 rng(2);
    for (const format f : formats) {
        const bool   in_256    = traits_of(f).n_unit == 256;
        const double tolerance = traits_of(f).n_file_block == 1 ? 2e-6 : 1e-6;
        for (const int64_t k :
             in_256 ? sizes{256, 1280} : check::by_scale<sizes>({64, 896, 2112}, {64, 576, 896, 2112})) {
            for (const int64_t n : heights(k <= 256)) {
                const problem            p(f, n, k, 17, true, rng);
                const std::vector<exact> want = exact_products(p);
                for (const kernel_set * kernels : kernels_to_test()) {
                    for (const int width : widths) {
                        const std::vector<float> y = p.run(*kernels, 0, width, 1 + width % 3, width % 4 == 0);
                        for (size_t i = 0; i < y.size(); ++i) {
                            if (!(std::fabs(double(y[i]) - want[i].value) <= tolerance * want[i].size)) {
                                check::fail(__FILE__, __LINE__,
                                            std::string(kernels->name) + " " + traits_of(f).name + " k " +
                                                std::to_string(k) + " n " + std::to_string(n) + " width " +
                                                std::to_string(width) + " place " + std::to_string(i) + ": " +
                                                std::to_string(y[i]) + " for " + std::to_string(want[i].value));
                                return;
                            }
                        }
                    }
                }
            }
        }
    }
}

// Everything but the scales of whole blocks.
void fill_codes(format f, bytes & rows, uint8_t value) {
    const format_traits & t = traits_of(f);
    for (size_t i = 0; i < rows.size(); ++i) {
        const auto at = int(i % size_t(t.n_file_bytes));
        if (f == format::iq1_m) { // its scale is in four parts
            const bool part = at >= 49 && at % 2 == 1;
            rows[i]         = part ? uint8_t((rows[i] & 0xf0) | (value & 15)) : value;
            continue;
        }
        const bool two  = f == format::q4_1 || f == format::q5_1 || f == format::q4_k || f == format::q5_k;
        const int  last = f == format::q2_k    ? 80 // where scales are at the end
                          : f == format::q3_k  ? 108
                          : f == format::tq1_0 ? 52
                          : f == format::tq2_0 ? 64
                                               : 208;
        const bool at_end =
            f == format::q2_k || f == format::q3_k || f == format::q6_k || f == format::tq1_0 || f == format::tq2_0;
        const bool is_scale = at_end ? at >= last : at < (two ? 4 : f == format::mxfp4 ? 1 : 2);
        rows[i]             = is_scale ? rows[i] : value;
    }
}

TEST(the_largest_codes_and_inputs_do_not_overflow) {
    std::mt19937 rng(7);
    for (const kernel_set * kernels : kernels_to_test()) {
        for (const format f : formats) {
            if (traits_of(f).n_file_block == 1) { // no codes
                continue;
            }
            for (const uint8_t value : {0xff, 0x00, 0x7f, 0x80, 0x77}) {
                problem p(f, 16, 256, 8, true, rng);
                fill_codes(f, p.file, value);
                pack_matrices(p.s, 1, p.file.data(), p.row_bytes, p.packed.data(), 1);
                std::fill_n(p.x.begin(), 4 * 256, 127.0f);
                std::fill_n(p.x.begin() + 4 * 256, 4 * 256, -127.0f);
                const std::vector<float> y = p.run(*kernels, 0, 8, 1);
                for (int64_t row = 0; row < 16; ++row) {
                    double want = 0;
                    double size = 0;
                    for (const double w : weights_of(f, p.file.data() + size_t(row) * p.row_bytes, 256)) {
                        want += 127 * w;
                        size += std::fabs(127 * w);
                    }
                    for (int c = 0; c < 8; ++c) {
                        const double got = double(y[size_t(c * 16 + row)]);
                        CHECK(std::fabs(c < 4 ? got - want : got + want) <= 1e-6 * size);
                    }
                }
            }
        }
    }
}

TEST(eight_bit_inputs_cost_little_accuracy) {
    std::mt19937 rng(3);
    for (const kernel_set * kernels : kernels_to_test()) {
        for (const format f : formats) {
            const problem            p(f, 64, 2048, 4, false, rng);
            const std::vector<float> y     = p.run(*kernels, 0, 4, 1);
            double                   wrong = 0;
            double                   all   = 0;
            for (int64_t row = 0; row < 64; ++row) {
                const std::vector<double> w = weights_of(f, p.file.data() + size_t(row) * p.row_bytes, 2048);
                for (int c = 0; c < 4; ++c) {
                    double want = 0;
                    for (int i = 0; i < 2048; ++i) {
                        want += w[size_t(i)] * double(p.x[size_t(c * 2048 + i)]);
                    }
                    wrong += std::pow(double(y[size_t(c * 64 + row)]) - want, 2);
                    all += want * want;
                }
            }
            CHECK(wrong / all < 2e-4); // 8-bit codes of Gaussian inputs: 3e-5 to 9e-5
        }
    }
}

TEST(bits_depend_neither_on_width_nor_on_threads) {
    std::mt19937 rng(4);
    for (const kernel_set * kernels : kernels_to_test()) {
        for (const format f : formats) {
            const problem            p(f, 104, 1280, 70, false, rng);
            const std::vector<float> all = p.run(*kernels, 0, 70, 1);
            for (const int width : widths) {
                const int                from = std::array{0, 3, 50}[size_t(width % 3)];
                const std::vector<float> some = p.run(*kernels, from, width, 1 + (width + from) % 4);
                REQUIRE(std::memcmp(some.data(), all.data() + from * 104, some.size() * sizeof(float)) == 0);
            }
        }
    }
}

// One order of additions, fused alike: what a machine can do changes no bit. Only instructions that multiply pairs of
// bf16 round in a way of their own.
TEST(all_instruction_sets_give_the_same_bits) {
    std::mt19937 rng(8);
    for (const format f : formats) {
        const int64_t            k = traits_of(f).n_unit == 256 ? 1280 : check::sanitized ? 1216 : 4864;
        const problem            p(f, check::sanitized ? 97 : check::by_scale(97, 277), k, 19, false, rng);
        const std::vector<float> want = p.run(*kernels_named("portable"), 0, 19, 1);
        for (const kernel_set * kernels : kernels_to_test()) {
            const std::string name = kernels->name;
            if (f != format::bf16 || (name != "avx512_bf16" && name != "neon_i8mm" && !kernels->is_wide(f, 1))) {
                CHECK(p.run(*kernels, 0, 19, 1) == want, name + " " + traits_of(f).name);
            }
        }
    }
}

// DUO_TEST_KERNELS, if set: the sets that this machine must be found to run, best first.
TEST(the_right_instruction_sets_are_found) {
    std::string found;
    for (const kernel_set * k : kernels_here()) {
        found += k->name;
        found += ' ';
    }
    found.pop_back();
    std::printf("instruction sets: %s\n", found.c_str());
    if (const char * want = std::getenv("DUO_TEST_KERNELS"); want != nullptr && *want != '\0') {
        CHECK_EQ(found, std::string(want));
    }
    CHECK_EQ(kernels_here().back(), kernels_named("portable"));
    if (std::getenv("DUO_CPU_ISA") == nullptr) {
        CHECK_EQ(best_kernels(), kernels_here().size() > 1 ? kernels_here().front() : nullptr);
    }
}

TEST(how_far_ahead_is_read_changes_no_bit) {
    std::mt19937  rng(9);
    const problem p(format::q4_k, 80, 2048, 4, false, rng);
    CHECK(read_ahead(format::q4_k) == n_ahead_usual);
    for (const kernel_set * kernels : kernels_to_test()) {
        const std::vector<float> usual = p.run(*kernels, 0, 4, 1);
        for (const int ahead : {0, 1, 4096, 1 << 30}) { // behind the end of the matrix, too
            set_read_ahead(format::q4_k, ahead);
            CHECK(read_ahead(format::q4_k) == std::min(ahead, n_ahead_most));
            CHECK(p.run(*kernels, 0, 4, 1) == usual);
        }
        set_read_ahead(format::q4_k, n_ahead_usual);
    }
}

TEST(memory_out_of_the_caches_keeps_its_bytes) {
    std::vector<uint8_t> bytes(100001);
    std::iota(bytes.begin(), bytes.end(), uint8_t(3));
    const std::vector<uint8_t> before = bytes;
    bytes[77] ^= 1; // a line that main memory does not have yet
    std::printf("can evict: %s\n", can_evict() ? "yes" : "no");
    if (can_evict()) {
        evict(bytes.data() + 1, bytes.size() - 2);
        evict(bytes.data(), 0);
    }
    bytes[77] ^= 1;
    CHECK(bytes == before);
}

TEST(several_matrices_each_with_its_inputs) {
    // As experts: some have many inputs, some one, some none.
    std::mt19937       rng(5);
    const kernel_set & kernels = *kernels_here().front();
    for (const format f : formats) {
        std::vector<problem>            experts;
        std::vector<std::vector<float>> out;
        std::vector<job>                jobs;
        for (const int n : {3, 1, 0, 21}) {
            experts.emplace_back(f, 96, 512, std::max(1, n), false, rng);
            out.emplace_back(size_t(n * 96));
        }
        for (size_t e = 0; e < experts.size(); ++e) {
            job j{experts[e].packed.data(), {}};
            for (size_t c = 0; c < out[e].size() / 96; ++c) {
                j.columns.push_back({experts[e].x.data() + c * 512, out[e].data() + c * 96});
            }
            jobs.push_back(std::move(j));
        }
        workspace memory;
        multiply(kernels, experts[0].s, jobs, 2, memory, false);
        for (size_t e = 0; e < experts.size(); ++e) {
            if (!out[e].empty()) {
                CHECK(out[e] == experts[e].run(kernels, 0, int(out[e].size() / 96), 1));
            }
        }
    }
}

TEST(not_a_number_goes_through_and_zero_stays_zero) {
    std::mt19937 rng(6);
    for (const kernel_set * kernels : kernels_to_test()) {
        for (const format f : formats) {
            for (const int n : {3, 9}) {
                problem p(f, 32, 512, n, false, rng);
                p.x[700] = NAN;
                std::fill(p.x.begin() + 1024, p.x.end(), 0.0f);
                const std::vector<float> y = p.run(*kernels, 0, n, 1);
                for (int row = 0; row < 32; ++row) {
                    CHECK(std::isfinite(y[size_t(row)]));
                    CHECK(std::isnan(y[size_t(32 + row)]));
                    CHECK_EQ(y[size_t(32 * (n - 1) + row)], 0.0f);
                }
            }
        }
    }
}

TEST(a_call_reaches_each_member_of_a_team) {
    for (const int n : {1, 2, 3}) {
        std::atomic<int> n_calls{0};
        on_team(n, [&n_calls] { ++n_calls; });
        CHECK_EQ(n_calls.load(), has_threads() ? n : 1);
    }
}
