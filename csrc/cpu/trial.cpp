#include "trial.h"

#include <algorithm>
#include <array>
#include <exception>
#include <sstream>

#if defined(__linux__)
#include <sys/prctl.h>
#endif
#if defined(_WIN32)
#include <io.h>
#else
#include <unistd.h>
#endif

#include "base/compiler.h"
#include "extra_buffers.h"
#include "ggml_buffer.h"
#include "ggml_device.h"
#include "ggml_plugins.h"
#include "ggml_product.h"
#include "kernel.h"
#include "team.h"

namespace duo::cpu {

namespace {

// Weight types of common files. Each is tried with one matrix, as small as AMX accepts, at the widths of one token
// (for which ggml uses no tiles), a verification and a prompt.
constexpr std::array types  = {GGML_TYPE_F32,   GGML_TYPE_F16,     GGML_TYPE_BF16,   GGML_TYPE_Q8_0,   GGML_TYPE_Q4_0,
                               GGML_TYPE_Q4_1,  GGML_TYPE_Q5_0,    GGML_TYPE_Q5_1,   GGML_TYPE_Q2_K,   GGML_TYPE_Q3_K,
                               GGML_TYPE_Q4_K,  GGML_TYPE_Q5_K,    GGML_TYPE_Q6_K,   GGML_TYPE_IQ4_NL, GGML_TYPE_IQ4_XS,
                               GGML_TYPE_MXFP4, GGML_TYPE_IQ2_XXS, GGML_TYPE_IQ2_XS, GGML_TYPE_IQ2_S,  GGML_TYPE_IQ3_XXS,
                               GGML_TYPE_IQ3_S, GGML_TYPE_IQ1_S,   GGML_TYPE_IQ1_M,  GGML_TYPE_TQ1_0,  GGML_TYPE_TQ2_0};
constexpr std::array widths = {1, 4, 32};
constexpr int64_t    n_rows = 32;
constexpr int64_t    n_columns  = 256;
constexpr double     most_error = 0.01; // 8-bit rounding of inputs causes 0.0001

// Fills the stack with garbage, as earlier functions do in real use. If a compiler dropped the stores to a tile
// configuration, garbage makes it fail, while a fresh stack of zeros would hide the error.
DUO_NOINLINE void soil_stack() {
    std::array<volatile char, 1 << 15> garbage;
    for (volatile char & c : garbage) {
        c = char(0xff);
    }
}

// Uses write(), so that the line is out before the process dies.
void write_now(int file, const std::string & line) {
#if defined(_WIN32)
    _write(file, line.data(), unsigned(line.size()));
#else
    [[maybe_unused]] const ssize_t n = write(file, line.data(), line.size());
#endif
}

void say(const char * what, const std::string & name) {
    write_now(1, std::string(what) + '\t' + name + '\n');
}

bool is_right(ggml_backend_buffer_type_t weights, ggml_backend_dev_t device, ggml_type type, int width) {
    ggml_product p(weights, device, 1, type, n_columns, n_rows, width);
    if (!p.can_run(device)) {
        return true;
    }
    const std::vector<float> source = gaussian(size_t(n_rows * n_columns), 0.02f);
    const std::vector<float> input  = gaussian(size_t(width * n_columns), 1);
    std::vector<uint8_t>     weight(size_t(n_rows) * ggml_row_size(type, n_columns));
    std::vector<float>       exact(source);
    if (type == GGML_TYPE_F32) {
        std::copy_n(reinterpret_cast<const uint8_t *>(source.data()), weight.size(), weight.begin());
    } else {
        weight = some_rows(type, n_rows, n_columns);
        ggml_get_type_traits(type)->to_float(weight.data(), exact.data(), n_rows * n_columns);
    }
    p.set(weight, input);
    soil_stack();
    p.compute();
    return error_of(p.product(), exact, input, size_t(n_columns)) < most_error; // false for NaN
}

void try_kind(const std::string & name, ggml_backend_buffer_type_t weights, ggml_backend_dev_t device, bool ours) {
    bool right = true;
    say("begins", name);
    for (const ggml_type type : types) {
        if (ours && !shape_of(type, n_columns, n_rows)) {
            continue;
        }
        for (const int width : widths) {
            right = right && is_right(weights, device, type, width);
        }
    }
    say(right ? "works" : "wrong", name);
}

std::vector<std::string> lines_of(const char * text) {
    std::vector<std::string> lines;
    std::istringstream       in(text);
    for (std::string line; std::getline(in, line);) {
        lines.push_back(line);
    }
    return lines;
}

} // namespace

void try_products(const std::vector<std::string> & skip) {
    const auto wanted = [&](const std::string & name) {
        return std::find(skip.begin(), skip.end(), name) == skip.end();
    };
    const team_size    packing(1); // otherwise a thread for each processor, and not every system starts so many
    ggml_backend_dev_t cpu = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    if (cpu != nullptr && wanted("plain")) {
        try_kind("plain", ggml_backend_cpu_buffer_type(), cpu, false);
    }
    for (ggml_backend_buffer_type_t b : extra_buffers()) {
        if (const std::string name = ggml_backend_buft_name(b); wanted(name)) {
            try_kind(name, b, cpu, false);
        }
    }
    const std::string ours = "duo " + kernels_name();
    if (best_kernels() == nullptr || !wanted(ours)) {
        // nothing more to try
    } else if (ggml_backend_buffer_type_t weights = weight_buffer_type(); weights == nullptr) {
        say("absent", ours);
    } else {
        try_kind(ours, weights, ggml_backend_buft_get_device(weights), true);
    }
    say("done", "");
}

} // namespace duo::cpu

// For the child process (src/duo/placement/trial_child.py), which loads this library without Python's import. Both
// arguments are names, one per line. Returns the exit code.
extern "C" DUO_EXPORT int duo_try_products(const char * skip, const char * refused) {
#if defined(__linux__)
    prctl(PR_SET_DUMPABLE, 0); // no core file for an expected crash
#endif
    try {
        duo::cpu::load_plugins();
        duo::cpu::refuse_kernels(duo::cpu::lines_of(refused));
        duo::cpu::try_products(duo::cpu::lines_of(skip));
    } catch (const std::exception & e) {
        duo::cpu::write_now(2, std::string(e.what()) + '\n');
        return 1;
    }
    return 0;
}
