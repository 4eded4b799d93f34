// The figures of one request as a dict, with the names of the C++ members.
#include <pybind11/stl.h>

#include "base/error.h"
#include "bindings.h"
#include "plan/stance_rates.h"
#include "plan/text_share.h"
#include "wires/part_stats.h"

namespace py = pybind11;
using namespace pybind11::literals;

namespace duo {

namespace {

// Widths that were measured -> microseconds.
template <typename Measured, typename Time> py::dict times(int32_t n_most, Measured measured, Time time) {
    py::dict out;
    for (int32_t n = 1; n <= n_most; ++n) {
        if (measured(n)) {
            out[py::int_(n)] = time(n);
        }
    }
    return out;
}

// Tokens per second that each way of writing one text promises, by what was measured; 0: nothing was.
py::dict promised(const request & r, const pair_profile & profile) {
    stance_rates rates(profile);
    rates.begin({.n_max    = n_drafted_most(r.plan, tree_shape(r.plan.tree)),
                 .n_min    = r.plan.n_min,
                 .n_levels = profile.passes().prior().n_levels,
                 .kind     = r.sampling.kind()});
    return py::dict("plain"_a = 1e6 * rates.plain(), "by_turn"_a = 1e6 * rates.now().turns.rate,
                    "ahead"_a = 1e6 * rates.now().ahead.rate);
}

} // namespace

const char * name_of(stance s) {
    constexpr const char * names[] = {"ahead", "by turn", "rest"};
    return names[size_t(s)];
}

py::dict stats_of(const request & r, const pair_profile & profile) {
    const verify_stats & s = r.stats;
    py::dict             d("n_prompt"_a = s.n_prompt, "n_predicted"_a = s.n_predicted, "t_begin_us"_a = s.t_begin_us,
                           "t_first_us"_a = s.t_first_us, "t_end_us"_a = s.t_end_us, "draft_steps"_a = r.draft->n_steps.load(),
                           "draft_nodes"_a = r.draft->n_nodes.load(), "draft_busy_us"_a = r.draft->busy_us.load(),
                           "draft_hidden_us"_a = r.draft->hidden_us.load(), "error"_a = text_of(r.error.sentence),
                           "error_code"_a = error_codes[size_t(r.error.kind)], "warning"_a = text_of(r.warning));
    d.attr("update")(part_stats(s));
    d["pass_us"] = times(
        n_rows_cap, [&](int32_t n) { return profile.passes().measured(n); },
        [&](int32_t n) { return profile.passes().measured_us(n); });
    d["step_us"] = times(
        n_step_cap, [&](int32_t n) { return profile.measured_step(n, true) || profile.measured_step(n, false); },
        [&](int32_t n) { return profile.step_us(n, profile.measured_step(n, true)); });
    d["slowdown"]                = profile.passes().slowdown();
    d["promised"]                = promised(r, profile);
    const guess_record & guesses = profile.guesses(r.sampling.kind());
    std::vector<double>  levels;
    for (int32_t i = 0; i < 8; ++i) {
        levels.push_back(guesses.acceptance(i));
    }
    d["acceptance"] = levels;
    std::vector<double> ages;
    for (int32_t i = 0; i < n_ages && guesses.has_ages(); ++i) {
        ages.push_back(guesses.acceptance_of_age(i));
    }
    d["acceptance_of_age"] = ages;
    return d;
}

py::dict usage_of(const engine_usage & u) {
    const auto of = [](const worker_usage & w) {
        return py::dict("cells"_a = w.cells, "n_active"_a = w.n_active, "n_parked"_a = w.n_parked,
                        "n_branches"_a = w.n_branches, "n_begins"_a = w.n_begins, "n_kept"_a = w.n_kept,
                        "kept_bytes"_a = w.kept_bytes);
    };
    const pass_counts & p = u.passes;
    py::dict            by_width;
    for (size_t n = 0; n < p.by_width.size(); ++n) {
        if (p.by_width[n] > 0) {
            by_width[py::int_(n)] = p.by_width[n];
        }
    }
    const py::dict passes("by_width"_a = by_width, "n_rows"_a = p.n_rows, "n_texts"_a = p.n_texts,
                          "stance_us"_a = p.kind_us);
    return py::dict("target"_a = of(u.target), "draft"_a = of(u.draft), "n_threads"_a = u.n_threads,
                    "n_open"_a = u.n_open, "n_queued"_a = u.n_queued, "n_unfreed"_a = u.n_unfreed, "passes"_a = passes);
}

namespace {

// Reads a figure from another process, or a list of figures. Extra elements of a list are ignored.
template <typename T> void read_figure(const py::handle & from, T & to) {
    if constexpr (std::is_integral_v<T>) {
        to = py::cast<T>(from);
        if (to < 0) {
            throw error(error_kind::peer_lost, "the other side sent a negative figure");
        }
    } else {
        size_t i = 0;
        for (const auto & x : py::cast<py::list>(from)) {
            if (i < to.size()) {
                read_figure(x, to[i++]);
            }
        }
    }
}

} // namespace

py::dict part_stats(const verify_stats & s) {
    py::dict d;
    each_part_figure([&](const char * name, auto member) { d[name] = s.*member; });
    return d;
}

verify_stats part_of(const py::dict & d) {
    verify_stats s;
    try {
        each_part_figure([&](const char * name, auto member) {
            if (d.contains(name)) {
                read_figure(d[name], s.*member);
            }
        });
    } catch (const py::cast_error &) {
        throw error(error_kind::peer_lost, "the other side sent an impossible figure");
    }
    return s;
}

} // namespace duo
