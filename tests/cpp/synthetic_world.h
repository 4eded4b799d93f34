// What the tests of the synthetic models share.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "base/error.h"
#include "check.h"
#include "synthetic/synthetic_model.h"

namespace duo_test {

using namespace duo;

using text = std::vector<token_id>;

constexpr int32_t n_ranks = agreement::n_ranks;

inline const std::atomic<bool> go_on{false};
inline const sampling_params   sampled{};

inline synthetic_options timeless() {
    synthetic_options o;
    o.pass_us = 0.0;
    o.n_ctx   = 20100;
    return o;
}

inline void read(synthetic_model & m, const text & all, int32_t from, int32_t branch = 0, int32_t n_branches = 1) {
    std::vector<row> rows;
    for (int32_t pos = from; pos < int32_t(all.size()); ++pos) {
        rows.push_back({.token      = all[size_t(pos)],
                        .pos        = pos,
                        .branch     = branch,
                        .n_branches = n_branches,
                        .output     = pos + 1 == int32_t(all.size())});
    }
    REQUIRE(m.decode(rows, go_on) == decode_status::ok);
}

// Candidates after the last row of a pass over `n_rows`.
inline std::vector<candidate> after(synthetic_model & m, const text & all, size_t n_rows, size_t n_out = n_ranks) {
    std::vector<candidate> out(n_out);
    out.resize(size_t(m.candidates(int32_t(n_rows) - 1, sampled, all, out)));
    return out;
}

inline token_id chosen(synthetic_model & m, const text & all, size_t n_rows) {
    return after(m, all, n_rows, 1).at(0).token;
}

// Where the call throws duo::error.
template <typename F> void check_throws(F call, const char * note) {
    try {
        call();
        CHECK(false, std::string("no error: ") + note);
    } catch (const duo::error &) {}
}

} // namespace duo_test
