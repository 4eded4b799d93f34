// Weights as csrc/cpu packs them: nothing is lost, and little is added.
#include <cmath>

#include "check.h"
#include "weights.h"

using namespace duo::cpu;

TEST(every_format_gives_its_bytes_back) {
    std::mt19937 rng(1);
    for (const format f : formats) {
        for (const int64_t k : traits_of(f).n_unit == 256 ? std::vector<int64_t>{256, 1280, 2304}
                                                          : std::vector<int64_t>{64, 576, 896, 2304, 4864}) {
            for (const int64_t n : {1, 16, 63, 64, 81, 300}) {
                const problem p(f, n, k, 1, false, rng);
                for (int64_t row = 0; row < n; ++row) {
                    bytes out(p.row_bytes);
                    unpack_row(p.s, p.packed.data(), row, out.data());
                    REQUIRE(std::memcmp(out.data(), p.file.data() + size_t(row) * p.row_bytes, p.row_bytes) == 0);
                }
            }
        }
    }
}

TEST(mxfp4_keeps_every_exponent) {
    constexpr int64_t k = 256 * 32;
    bytes             file(256 * 17, 0x21); // 0.5 and 1
    for (size_t e = 0; e < 256; ++e) {
        file[e * 17] = uint8_t(e);
    }
    const matrix_shape s{format::mxfp4, 1, k};
    bytes              packed(s.bytes());
    bytes              out(file.size());
    pack_matrices(s, 1, file.data(), file.size(), packed.data(), 1);
    unpack_row(s, packed.data(), 0, out.data());
    CHECK(out == file);
    for (const int e : {2, 3, 127, 253, 254, 255}) { // those whose products are ordinary floats
        std::vector<float> x(size_t(k), 0.0f);
        x[size_t(e * 32)] = 1.0f;
        float     y       = NAN;
        workspace memory;
        multiply(kernels_portable, s, {{packed.data(), {{x.data(), &y}}}}, 1, memory, false);
        const double want = std::ldexp(0.5, e - 127);
        CHECK(std::fabs(double(y) - want) <= 1e-6 * want, std::to_string(e));
    }
}

// FNV-1a of the bytes of a grid in ggml-common.h. numbers: what the digits of an entry stand for.
template <int n> uint64_t hash_of(const codebook<n> & book, int n_columns, const std::vector<int> & numbers) {
    uint64_t h = 0xcbf29ce484222325;
    for (const uint32_t entry : book.entries) {
        for (int i = 0; i < n_columns; ++i) {
            const uint32_t digit = (entry >> (8 * (i % 4) + i / 4 * 4)) & 15;
            h                    = (h ^ uint8_t(numbers.at(digit))) * 0x100000001b3;
        }
    }
    return h;
}

TEST(codebooks_are_ggmls) {
    const std::vector<int> two = {8, 25, 43};
    CHECK_EQ(hash_of(book_iq2_xxs, 8, two), 0xbb4ee025b5ac6e8eU);
    CHECK_EQ(hash_of(book_iq2_xs, 8, two), 0xc9b1ee61e79909bdU);
    CHECK_EQ(hash_of(book_iq2_s, 8, two), 0x123edd38a3b62b90U);
    CHECK_EQ(hash_of(book_iq3_xxs, 4, {4, 12, 20, 28, 36, 44, 52, 62}), 0xdfa5dc83d6a155d5U);
    CHECK_EQ(hash_of(book_iq3_s, 4, {1, 3, 5, 7, 9, 11, 13, 15}), 0xfa37020c25b44829U);
    CHECK_EQ(hash_of(book_iq1, 8, {-1, 0, 1}), 0x6703ed863501ae2eU);
}

TEST(packed_weights_are_as_large_as_the_file) {
    for (const format f : formats) {
        const matrix_shape s{f, 4096, 4096};
        const double       file = 4096.0 * 4096.0 / traits_of(f).n_file_block * traits_of(f).n_file_bytes;
        const bool         wider_scales =
            f == format::mxfp4 || f == format::q3_k || f == format::iq4_xs || f == format::tq1_0 || f == format::tq2_0;
        const double most = has_codebook(f) ? 1.10 : wider_scales ? 1.06 : 1.02;
        CHECK(double(s.bytes()) <= most * file);
    }
}
