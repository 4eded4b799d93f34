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
    pack_matrix(s, file.data(), file.size(), packed.data(), 1);
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

TEST(packed_weights_are_as_large_as_the_file) {
    for (const format f : formats) {
        const matrix_shape s{f, 4096, 4096};
        const double       file         = 4096.0 * 4096.0 / traits_of(f).n_file_block * traits_of(f).n_file_bytes;
        const bool         wider_scales = f == format::mxfp4 || f == format::q3_k || f == format::iq4_xs;
        const double       most         = has_codebook(f) ? 1.10 : wider_scales ? 1.06 : 1.02;
        CHECK(double(s.bytes()) <= most * file);
    }
}
