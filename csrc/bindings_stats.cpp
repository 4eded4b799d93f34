// Figures of one request as a dict: names are those of the C++ members.
#include <pybind11/stl.h>

#include "bindings.h"
#include "error.h"

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

} // namespace

py::str text_of(const std::string & s) {
    return py::reinterpret_steal<py::str>(PyUnicode_DecodeUTF8(s.data(), Py_ssize_t(s.size()), "replace"));
}

const char * name_of(stance s) {
    constexpr const char * names[] = {"ahead", "by turn", "rest"};
    return names[size_t(s)];
}

py::dict stats_of(const request & r, const pair_profile & profile) {
    const verify_stats & s = r.stats;
    py::dict d("n_prompt"_a = s.n_prompt, "n_prompt_cached"_a = s.n_prompt_cached, "n_predicted"_a = s.n_predicted,
               "n_passes"_a = s.n_passes, "n_verifications"_a = s.n_verifications, "n_drafted"_a = s.n_drafted,
               "n_accepted"_a = s.n_accepted, "n_hits"_a = s.n_hits, "n_after_hit"_a = s.n_after_hit,
               "n_tokens_after_hit"_a = s.n_tokens_after_hit, "n_tokens_after_miss"_a = s.n_tokens_after_miss,
               "n_side"_a = s.n_side, "n_path"_a = s.n_path, "n_path_accepted"_a = s.n_path_accepted,
               "n_ngram"_a = s.n_ngram, "n_ngram_accepted"_a = s.n_ngram_accepted);
    d.attr("update")(py::dict(
        "t_begin_us"_a = s.t_begin_us, "t_first_us"_a = s.t_first_us, "t_end_us"_a = s.t_end_us,
        "prompt_us"_a = s.prompt_us, "busy_us"_a = s.busy_us, "wait_us"_a = s.wait_us, "overhead_us"_a = s.overhead_us,
        "n_tested_at"_a = s.n_tested_at, "n_accepted_at"_a = s.n_accepted_at, "n_passes_in"_a = s.n_passes_in,
        "draft_steps"_a = r.draft.n_steps.load(), "draft_nodes"_a = r.draft.n_nodes.load(),
        "draft_busy_us"_a = r.draft.busy_us.load(), "draft_hidden_us"_a = r.draft.hidden_us.load(),
        "error"_a = text_of(r.error), "warning"_a = text_of(r.warning)));
    d["pass_us"] = times(
        n_rows_cap, [&](int32_t n) { return profile.measured(n); }, [&](int32_t n) { return profile.measured_us(n); });
    d["step_us"] = times(
        n_step_cap, [&](int32_t n) { return profile.measured_step(n); }, [&](int32_t n) { return profile.step_us(n); });
    d["slowdown"] = profile.slowdown();
    std::vector<double> levels;
    for (int32_t i = 0; i < 8; ++i) {
        levels.push_back(profile.acceptance(i));
    }
    d["acceptance"] = levels;
    return d;
}

namespace {

// What one part of a text, written on a host, adds to the figures of the whole: names as above.
template <typename Stats, typename Number, typename List>
void each_part(Stats & s, const Number & one, const List & list) {
    one("n_prompt_cached", s.n_prompt_cached);
    one("n_passes", s.n_passes);
    one("n_verifications", s.n_verifications);
    one("n_drafted", s.n_drafted);
    one("n_accepted", s.n_accepted);
    one("n_hits", s.n_hits);
    one("n_after_hit", s.n_after_hit);
    one("n_tokens_after_hit", s.n_tokens_after_hit);
    one("n_tokens_after_miss", s.n_tokens_after_miss);
    one("n_path", s.n_path);
    one("n_path_accepted", s.n_path_accepted);
    one("n_side", s.n_side);
    one("n_ngram", s.n_ngram);
    one("n_ngram_accepted", s.n_ngram_accepted);
    one("prompt_us", s.prompt_us);
    one("busy_us", s.busy_us);
    one("wait_us", s.wait_us);
    one("overhead_us", s.overhead_us);
    list("n_tested_at", s.n_tested_at);
    list("n_accepted_at", s.n_accepted_at);
    list("n_passes_in", s.n_passes_in);
}

// A figure from another process.
template <typename T> void read_figure(const py::handle & from, T & to) {
    to = py::cast<T>(from);
    if (to < 0) {
        throw error("the other side sent a negative figure");
    }
}

} // namespace

py::dict part_stats(const verify_stats & s) {
    py::dict   d;
    const auto put = [&](const char * name, const auto & value) { d[name] = value; };
    each_part(s, put, put);
    return d;
}

verify_stats part_of(const py::dict & d) {
    verify_stats s;
    try {
        each_part(
            s,
            [&](const char * name, auto & value) {
                if (d.contains(name)) {
                    read_figure(d[name], value);
                }
            },
            [&](const char * name, auto & values) {
                size_t i = 0;
                for (const auto & x : d.contains(name) ? py::cast<py::list>(d[name]) : py::list()) {
                    if (i < values.size()) {
                        read_figure(x, values[i++]);
                    }
                }
            });
    } catch (const py::cast_error &) {
        throw error("the other side sent an impossible figure");
    }
    return s;
}

} // namespace duo
