// Kernels on tile registers: the same bits as without tiles, and the code for AMX, which runs where the machine has it
// and is trapped instruction by instruction where it has not.
#include "check.h"
#include "cpu/amx.h"
#include "tile_shapes.h"
#include "weights.h"

#if defined(DUO_AMX) && defined(__linux__)
#include "tile_trap.h"
#endif

using namespace duo::cpu;

namespace {

#if defined(DUO_X86)

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

TEST(tiles_give_the_bits_that_are_given_without_them) {
    std::mt19937 rng(11);
    for (const auto & [with, without] : sets_with_tiles()) {
        for (const format f : formats) {
            if (f == format::bf16) {
                continue; // rounds in its own way, at every width: see test_cpu_kernels
            }
            for (const int64_t k : traits_of(f).n_unit == 256 ? std::vector<int64_t>{256, 1280}
                                                              : std::vector<int64_t>{64, 192, 320, 1472}) {
                for (const int64_t n : k < 300 ? std::vector<int64_t>{1, 270} : std::vector<int64_t>{33}) {
                    const problem p(f, n, k, 40, false, rng);
                    for (int width = 1; width <= 40; width += check::scale() <= 1.0 ? 15
                                                              : width < 18          ? 1
                                                                                    : 7) { // 16, 31: tiles
                        REQUIRE(same_bits(p.run(*with, 0, width, width % 2 == 0 ? 2 : 1), p.run(*without, 0, width, 1)),
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
            for (const int n : check::cases({64, 127, 200}, {64, 127, 200, 512})) {
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

TEST(the_tile_configuration_of_others_is_restored) {
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

TEST(amx_code_traps_without_amx) {
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
