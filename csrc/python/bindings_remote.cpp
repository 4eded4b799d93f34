#include "bindings_remote.h"

#include <pybind11/stl.h>

#include "base/clock.h"
#include "base/error.h"
#include "bindings.h"
#include "remote/draft_link.h"
#include "remote/target_link.h"
#include "wires/message_limits.h"

namespace py = pybind11;
using namespace pybind11::literals;

namespace duo {

namespace {

constexpr const char * node_kinds[]    = {"node", "pause", "failed", "share"};
constexpr const char * verdict_kinds[] = {"begin", "orders", "verdict", "end"};
constexpr const char * chunk_kinds[]   = {"token", "logprob", "end"};
constexpr const char * finishes[]      = {"", "stop", "length", "cancelled", "error"};

template <typename Enum, size_t n> Enum kind_of(const char * const (&names)[n], const py::handle & value) {
    const auto name = py::cast<std::string>(value);
    for (size_t i = 0; i < n; ++i) {
        if (name == names[i]) {
            return Enum(i);
        }
    }
    throw error(error_kind::peer_lost, "the other side sent a message of unknown kind " + name.substr(0, 40));
}

// Checks that each tuple has n fields and turns it into a message with `make`.
template <typename Message, typename Make>
std::vector<Message> messages(const py::list & tuples, size_t n, const Make & make) {
    std::vector<Message> out;
    out.reserve(tuples.size());
    try {
        for (const auto & x : tuples) {
            const auto t = py::cast<py::tuple>(x);
            if (t.size() != n) {
                throw error(error_kind::peer_lost,
                            "the other side sent a message of " + std::to_string(t.size()) + " fields");
            }
            out.push_back(make(t));
        }
    } catch (const py::cast_error &) { // a number that does not fit its field
        throw error(error_kind::peer_lost, "the other side sent a message with an impossible number");
    }
    return out;
}

template <typename T> T at(const py::tuple & t, size_t i) {
    return py::cast<T>(t[i]);
}

} // namespace

const char * name_of(finish_reason f) {
    return finishes[size_t(f)];
}

std::vector<node_msg> nodes_of(const py::list & tuples) {
    return messages<node_msg>(tuples, 9, [](const py::tuple & t) {
        return node_msg{.what    = kind_of<node_msg::kind>(node_kinds, t[0]),
                        .guess   = at<bool>(t, 1),
                        .id      = at<node_id>(t, 2),
                        .parent  = at<node_id>(t, 3),
                        .token   = at<token_id>(t, 4),
                        .logp    = at<float>(t, 5),
                        .rank    = at<int16_t>(t, 6),
                        .n_rows  = at<int16_t>(t, 7),
                        .step_us = at<float>(t, 8)};
    });
}

std::vector<verdict_msg> verdicts_of(const py::list & tuples) {
    return messages<verdict_msg>(tuples, 9, [](const py::tuple & t) {
        return verdict_msg{.what         = kind_of<verdict_msg::kind>(verdict_kinds, t[0]),
                           .accepted     = at<node_id>(t, 1),
                           .token        = at<token_id>(t, 2),
                           .n_ahead      = at<int16_t>(t, 3),
                           .n_branch     = at<int16_t>(t, 4),
                           .n_want       = at<int16_t>(t, 5),
                           .branch_price = at<int16_t>(t, 6),
                           .least_path   = at<int16_t>(t, 7),
                           .sharpness    = at<int16_t>(t, 8)};
    });
}

std::vector<chunk_msg> chunks_of(const py::list & tuples) {
    return messages<chunk_msg>(tuples, 8, [](const py::tuple & t) {
        return chunk_msg{.what       = kind_of<chunk_msg::kind>(chunk_kinds, t[0]),
                         .from_draft = at<bool>(t, 1),
                         .hidden     = at<bool>(t, 2),
                         .finish     = kind_of<finish_reason>(finishes, t[3]),
                         .token      = at<token_id>(t, 4),
                         .logp       = at<float>(t, 5),
                         .n_hold     = at<int32_t>(t, 6),
                         .n_drop     = at<int32_t>(t, 7)};
    });
}

py::list tuples_of(const std::vector<node_msg> & nodes) {
    py::list out;
    for (const node_msg & n : nodes) {
        out.append(py::make_tuple(node_kinds[size_t(n.what)], n.guess, n.id, n.parent, n.token, n.logp, n.rank,
                                  n.n_rows, n.step_us));
    }
    return out;
}

py::list tuples_of(const std::vector<verdict_msg> & verdicts) {
    py::list out;
    for (const verdict_msg & v : verdicts) {
        out.append(py::make_tuple(verdict_kinds[size_t(v.what)], v.accepted, v.token, v.n_ahead, v.n_branch, v.n_want,
                                  v.branch_price, v.least_path, v.sharpness));
    }
    return out;
}

py::list tuples_of(const std::vector<chunk_msg> & chunks) {
    py::list out;
    for (const chunk_msg & c : chunks) {
        out.append(py::make_tuple(chunk_kinds[size_t(c.what)], c.from_draft, c.hidden, name_of(c.finish), c.token,
                                  c.logp, c.n_hold, c.n_drop));
    }
    return out;
}

namespace {

void register_limits(py::module_ & m) {
    py::dict   sampling, plan;
    const auto into = [](py::dict & d) {
        return
            [&d](const char * name, const auto &, double least, double most) { d[name] = py::make_tuple(least, most); };
    };
    each_sampling_limit(into(sampling));
    each_plan_limit(into(plan));
    m.attr("LIMITS") =
        py::dict("sampling"_a = sampling, "plan"_a = plan, "n_logprobs"_a = n_logprobs_most, "n_stops"_a = n_stops_most,
                 "n_stop_bytes"_a = n_stop_bytes_most, "n_bias"_a = n_bias_most, "bias"_a = bias_most,
                 "n_grammar_bytes"_a = n_grammar_bytes_most, "n_breakers"_a = n_breakers_most,
                 "n_breaker_bytes"_a = n_breaker_bytes_most, "n_tree"_a = n_tree_most, "n_rank"_a = n_rank_most);
}

void register_begin(py::module_ & m) {
    using t = text_params;
    py::class_<t>(m, "Begin")
        .def(py::init<>())
        .def_readwrite("id", &t::id)
        .def_readwrite("prompt", &t::prompt)
        .def_readwrite("client", &t::client)
        .def_readwrite("n_generated", &t::n_generated)
        .def_readwrite("n_predict", &t::n_predict)
        .def_readwrite("n_logprobs", &t::n_logprobs)
        .def_readwrite("stop", &t::stop)
        .def_readwrite("sampling", &t::sampling)
        .def_readwrite("plan", &t::plan);
}

void register_draft_link(py::module_ & m) {
    using link = draft_link;
    py::class_<link, std::shared_ptr<link>>(m, "DraftLink")
        .def(
            "wait_begin", [](link & l, int64_t us) { return l.wait_begin(now_us() + us); }, "timeout_us"_a, released)
        .def(
            "take",
            [](link & l, int64_t us) {
                std::vector<verdict_msg> verdicts;
                {
                    const py::gil_scoped_release waiting;
                    l.take(verdicts, now_us() + us);
                }
                return tuples_of(verdicts);
            },
            "timeout_us"_a)
        .def("ready", &link::ready, released)
        .def("lost", &link::lost, released)
        .def(
            "give",
            [](link & l, const py::list & tuples) {
                const auto                   nodes = nodes_of(tuples);
                const py::gil_scoped_release waiting;
                l.give(nodes);
            },
            "nodes"_a)
        .def("rtt", &link::rtt, "us"_a, released)
        .def_property_readonly("closed", &link::closed);
}

void register_target_link(py::module_ & m) {
    using link = target_link;
    py::class_<link, std::shared_ptr<link>>(m, "TargetLink")
        .def(
            "wait_begin", [](link & l, int64_t us) { return l.wait_begin(now_us() + us); }, "timeout_us"_a, released)
        .def(
            "take",
            [](link & l, int64_t us) {
                std::vector<node_msg> nodes;
                {
                    const py::gil_scoped_release waiting;
                    l.take(nodes, now_us() + us);
                }
                return tuples_of(nodes);
            },
            "timeout_us"_a)
        .def(
            "give",
            [](link & l, const py::list & verdict_tuples, const py::list & chunk_tuples) {
                const auto                   verdicts = verdicts_of(verdict_tuples);
                const auto                   chunks   = chunks_of(chunk_tuples);
                const py::gil_scoped_release waiting;
                l.give(verdicts, chunks);
            },
            "verdicts"_a, "chunks"_a)
        .def("restart", &link::restart, released)
        .def(
            "add_stats", [](link & l, const py::dict & d) { l.add_stats(part_of(d)); }, "stats"_a)
        .def(
            "fail",
            [](link & l, const std::string & why, const std::string & code) { l.fail({kind_of_code(code), why}); },
            "why"_a, "code"_a, released)
        .def("stopped", &link::stopped, released)
        .def_property_readonly("running", &link::running)
        .def_property_readonly("cancelled", py::cpp_function(&link::cancelled, released))
        .def_property_readonly("closed", &link::closed);
}

} // namespace

void register_remote(py::module_ & m) {
    register_limits(m);
    register_begin(m);
    register_draft_link(m);
    register_target_link(m);
    register_seats(m);
}

} // namespace duo
