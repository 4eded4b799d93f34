// Adds the figures of one part of a text to those of the whole. Several hosts may each have written a part.
#pragma once

#include <limits>
#include <type_traits>

#include "text/request.h"

namespace duo {

// Calls f(name, pointer to member) for each figure. The whole keeps prompt_us, n_prompt_cached and n_prompt_returned of
// the first part; the others are added up.
template <typename F> void each_part_figure(const F & f) {
    using s = verify_stats;
    f("n_passes", &s::n_passes);
    f("n_verifications", &s::n_verifications);
    f("n_drafted", &s::n_drafted);
    f("n_accepted", &s::n_accepted);
    f("n_hits", &s::n_hits);
    f("n_after_hit", &s::n_after_hit);
    f("n_tokens_after_hit", &s::n_tokens_after_hit);
    f("n_tokens_after_miss", &s::n_tokens_after_miss);
    f("n_side", &s::n_side);
    f("n_shifts", &s::n_shifts);
    f("n_path", &s::n_path);
    f("n_path_accepted", &s::n_path_accepted);
    f("n_ngram", &s::n_ngram);
    f("n_ngram_accepted", &s::n_ngram_accepted);
    f("n_prompt_cached", &s::n_prompt_cached);
    f("n_prompt_returned", &s::n_prompt_returned);
    f("prompt_us", &s::prompt_us);
    f("busy_us", &s::busy_us);
    f("wait_us", &s::wait_us);
    f("overhead_us", &s::overhead_us);
    f("n_tested_at", &s::n_tested_at);
    f("n_accepted_at", &s::n_accepted_at);
    f("n_tested_of_age", &s::n_tested_of_age);
    f("n_accepted_of_age", &s::n_accepted_of_age);
    f("n_passes_in", &s::n_passes_in);
}

// Stops at the largest number, as a part may come from an untrusted process.
template <typename T> void add_figure(T & sum, const T & more) {
    if constexpr (std::is_integral_v<T>) {
        sum = more > std::numeric_limits<T>::max() - sum ? std::numeric_limits<T>::max() : sum + more;
    } else {
        for (size_t i = 0; i < sum.size(); ++i) {
            add_figure(sum[i], more[i]);
        }
    }
}

inline void add_part(verify_stats & sum, const verify_stats & part) {
    const verify_stats first = sum.n_passes > 0 ? sum : part;
    each_part_figure([&](const char *, auto member) { add_figure(sum.*member, part.*member); });
    sum.n_prompt_cached   = first.n_prompt_cached;
    sum.n_prompt_returned = first.n_prompt_returned;
    sum.prompt_us         = first.prompt_us;
}

} // namespace duo
