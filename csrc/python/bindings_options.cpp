#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <pybind11/stl.h>

#include "base/error.h"
#include "bindings.h"
#include "engine.h"
#include "synthetic/delayed_model.h"

namespace py = pybind11;
using namespace pybind11::literals;

namespace duo {

namespace {

// A member of a part of the options as one of the options.
template <auto part, auto member, typename Options> void in_part(py::class_<Options> & c, const char * name) {
    using value = std::remove_cvref_t<decltype(Options{}.*part.*member)>;
    c.def_property(
        name, [](const Options & o) { return o.*part.*member; },
        [](Options & o, const value & x) { o.*part.*member = x; });
}

// The enumeration value with this name; names are in the order of the values.
template <typename Enum, size_t n> Enum value_of(const char * const (&names)[n], const std::string & name) {
    for (size_t i = 0; i < n; ++i) {
        if (name == names[i]) {
            return Enum(i);
        }
    }
    throw error(error_kind::bad_value, "unknown value " + name + "; see duo --help");
}

constexpr const char * modes[]       = {"plain", "sync", "async"};
constexpr const char * rules[]       = {"noise", "rejection", "typical", "top-n"};
constexpr const char * tree_uses[]   = {"auto", "chain", "dynamic"};
constexpr const char * ngram_kinds[] = {"none", "ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod"};

void register_plan(py::module_ & m) {
    using p = plan_params;
    py::class_<p> c(m, "Plan");
    c.def(py::init<>())
        .def_property(
            "mode", [](const p & x) { return modes[size_t(x.mode)]; },
            [](p & x, const std::string & name) { x.mode = value_of<run_mode>(modes, name); })
        .def_readwrite("n_draft", &p::n_max)
        .def_readwrite("n_draft_min", &p::n_min)
        .def_readwrite("p_min", &p::p_min)
        .def_readwrite("n_branch", &p::n_branch)
        .def_readwrite("n_window", &p::n_window)
        .def_readwrite("has_model", &p::has_model)
        .def_readwrite("always", &p::always)
        .def_property(
            "use", [](const p & x) { return tree_uses[size_t(x.use)]; },
            [](p & x, const std::string & name) { x.use = value_of<tree_use>(tree_uses, name); })
        .def_readwrite("tree", &p::tree)
        .def_property(
            "ngram", [](const p & x) { return ngram_kinds[size_t(x.ngram.kind)]; },
            [](p & x, const std::string & name) { x.ngram.kind = value_of<ngram_kind>(ngram_kinds, name); });
    using n = decltype(p::ngram);
    in_part<&p::ngram, &n::size_n>(c, "ngram_size_n");
    in_part<&p::ngram, &n::size_m>(c, "ngram_size_m");
    in_part<&p::ngram, &n::min_hits>(c, "ngram_min_hits");
}

void register_synthetic(py::module_ & m) {
    using o = synthetic_options;
    py::class_<o> c(m, "SyntheticOptions");
    c.def(py::init<>())
        .def_readwrite("pass_us", &o::pass_us)
        .def_readwrite("c", &o::c)
        .def_readwrite("v", &o::v)
        .def_readwrite("branch_cost", &o::branch_cost)
        .def_readwrite("n_vocab", &o::n_vocab)
        .def_readwrite("n_ctx", &o::n_ctx)
        .def_readwrite("n_parallel", &o::n_texts)
        .def_readwrite("seed", &o::seed)
        .def_readwrite("tracing", &o::tracing)
        .def_readwrite("has_draft", &o::has_draft);
    in_part<&o::agree, &agreement::a>(c, "a");
    in_part<&o::agree, &agreement::n_stretch>(c, "n_stretch");
    in_part<&o::agree, &agreement::burst>(c, "burst");
    in_part<&o::agree, &agreement::b>(c, "b");
    in_part<&o::agree, &agreement::confident>(c, "confident");
    in_part<&o::agree, &agreement::says>(c, "says");
}

using model_class = py::class_<model_options>;

// A place as a tuple: CPUs, whether each member has one, niceness.
using place_tuple = std::tuple<std::vector<int32_t>, bool, std::optional<int32_t>>;

template <cpu::team_place model_options::*place> place_tuple place_of(const model_options & x) {
    return {(x.*place).cpus, (x.*place).strict, (x.*place).nice};
}

template <cpu::team_place model_options::*place> void set_place(model_options & x, place_tuple p) {
    x.*place = {.cpus = std::move(std::get<0>(p)), .strict = std::get<1>(p), .nice = std::get<2>(p)};
}

void add_devices(model_class & c) {
    using o = model_options;
    c.def_readwrite("devices", &o::devices)
        .def_readwrite("n_gpu_layers", &o::n_gpu_layers)
        .def_readwrite("tensor_split", &o::tensor_split)
        .def_readwrite("split_mode", &o::split_mode)
        .def_readwrite("main_gpu", &o::main_gpu)
        .def_readwrite("offload_kqv", &o::offload_kqv)
        .def_readwrite("op_offload", &o::op_offload)
        .def_readwrite("check_tensors", &o::check_tensors)
        .def_readwrite("special", &o::special)
        .def_readwrite("host_buffers", &o::host_buffers)
        .def_readwrite("repack", &o::repack)
        .def_readwrite("override_tensors", &o::override_tensors)
        .def_readwrite("load_mode", &o::load_mode)
        .def_readwrite("lazy_mode", &o::lazy_mode)
        .def_readwrite("vocab_only", &o::vocab_only);
}

void add_context(model_class & c) {
    using o = model_options;
    c.def_readwrite("n_ctx", &o::n_ctx)
        .def_readwrite("n_ctx_most", &o::n_ctx_most)
        .def_readwrite("n_batch", &o::n_batch)
        .def_readwrite("n_ubatch", &o::n_ubatch)
        .def_readwrite("n_parallel", &o::n_parallel)
        .def_readwrite("guesses", &o::guesses)
        .def_readwrite("n_contexts", &o::n_contexts)
        .def_readwrite("n_marks", &o::n_marks)
        .def_readwrite("mark_step", &o::mark_step)
        .def_readwrite("flash_attn", &o::flash_attn)
        .def_readwrite("type_k", &o::type_k)
        .def_readwrite("type_v", &o::type_v)
        .def_readwrite("mtp", &o::mtp)
        .def_readwrite("feature_layers", &o::feature_layers);
}

void add_kernels(model_class & c) {
    using o = model_options;
    c.def_readwrite("n_threads", &o::n_threads)
        .def_readwrite("n_threads_batch", &o::n_threads_batch)
        .def_readwrite("cpus", &o::cpus)
        .def_property("narrow_team", place_of<&o::narrow_team>, set_place<&o::narrow_team>)
        .def_property("wide_team", place_of<&o::wide_team>, set_place<&o::wide_team>)
        .def_readwrite("strict", &o::strict)
        .def_readwrite("cpu_types", &o::cpu_types)
        .def_readwrite("draft_vocab", &o::draft_vocab)
        .def_property(
            "packing", [](const o & x) { return py::make_tuple(x.packing.stored, x.packing.types); },
            [](o & x, std::pair<std::string, std::vector<std::string>> p) {
                x.packing = {std::move(p.first), std::move(p.second)};
            })
        .def_property(
            "packed",
            [](const o & x) { return py::make_tuple(py::bytes(x.packed.path), x.packed.source, x.packed.check); },
            [](o & x, std::tuple<std::string, std::string, bool> p) {
                x.packed = {std::move(std::get<0>(p)), std::move(std::get<1>(p)), std::get<2>(p)};
            });
}

// What changes the file's weights or its header.
void add_changes(model_class & c) {
    using o = model_options;
    c.def_readwrite("loras", &o::loras)
        .def_readwrite("control_vectors", &o::control_vectors)
        .def_readwrite("control_first", &o::control_first)
        .def_readwrite("control_last", &o::control_last)
        .def_readwrite("rope_scaling", &o::rope_scaling)
        .def_readwrite("rope_freq_base", &o::rope_freq_base)
        .def_readwrite("rope_freq_scale", &o::rope_freq_scale)
        .def_readwrite("yarn_orig_ctx", &o::yarn_orig_ctx)
        .def_readwrite("yarn_ext_factor", &o::yarn_ext_factor)
        .def_readwrite("yarn_attn_factor", &o::yarn_attn_factor)
        .def_readwrite("yarn_beta_slow", &o::yarn_beta_slow)
        .def_readwrite("yarn_beta_fast", &o::yarn_beta_fast)
        .def_property(
            "kv_overrides",
            [](const o & x) {
                py::dict all;
                for (const auto & [key, value] : x.kv_overrides) {
                    all[py::str(key)] = value;
                }
                return all;
            },
            [](o & x, const py::dict & given) {
                x.kv_overrides.clear();
                for (const auto & [key, value] : given) {
                    x.kv_overrides.emplace_back(key.cast<std::string>(), value.cast<o::header_value>());
                }
            });
}

void register_model_options(py::module_ & m) {
    using o = model_options;
    model_class c(m, "ModelOptions");
    // Bytes: a file name need not be UTF-8.
    c.def(py::init<>())
        .def_property(
            "path", [](const o & x) { return py::bytes(x.path); },
            [](o & x, const std::string & path) { x.path = path; });
    add_devices(c);
    add_context(c);
    add_kernels(c);
    add_changes(c);
}

void register_engine_options(py::module_ & m) {
    using e = engine_options;
    py::class_<e> c(m, "EngineOptions");
    c.def(py::init<>())
        .def_readwrite("target", &e::target)
        .def_readwrite("draft", &e::draft)
        .def_readwrite("projector", &e::projector)
        .def_readwrite("draft_projector", &e::draft_projector)
        .def_readwrite("remote_draft", &e::remote_draft)
        .def_readwrite("n_ctx_remote", &e::n_ctx_remote)
        .def_readwrite("n_parallel", &e::n_parallel)
        .def_readwrite("n_kept_bytes", &e::n_kept_bytes)
        .def_readwrite("lookup_static", &e::lookup_static)
        .def_readwrite("lookup_dynamic", &e::lookup_dynamic)
        .def_readwrite("tracing", &e::tracing)
        .def_property(
            "split", [](const e & o) { return std::pair(o.prior.split.target, o.prior.split.draft); },
            [](e & o, const std::pair<int32_t, int32_t> & x) {
                o.prior.split = {.target = x.first, .draft = x.second};
            });
    // Tests provoke many schedules with it.
    m.def(
        "make_late",
        [](e & o, int32_t most_us, uint64_t seed) {
            o.wrap = [most_us, seed](token_model & inner) mutable {
                return std::make_unique<delayed_model>(inner, most_us, seed++);
            };
        },
        "options"_a, "most_us"_a, "seed"_a);
    in_part<&e::prior, &pair_prior::shared>(c, "shared");
    in_part<&e::prior, &pair_prior::pass_us>(c, "expected_pass_us");
    in_part<&e::prior, &pair_prior::step_us>(c, "expected_step_us");
}

void register_sampling(py::module_ & m) {
    using s = sampling_params;
    py::class_<s>(m, "Sampling")
        .def(py::init<>())
        .def_readwrite("temp", &s::temp)
        .def_readwrite("top_k", &s::top_k)
        .def_readwrite("top_p", &s::top_p)
        .def_readwrite("min_p", &s::min_p)
        .def_readwrite("repeat_penalty", &s::repeat_penalty)
        .def_readwrite("presence_penalty", &s::presence_penalty)
        .def_readwrite("frequency_penalty", &s::frequency_penalty)
        .def_readwrite("repeat_last_n", &s::repeat_last_n)
        .def_readwrite("seed", &s::seed)
        .def_readwrite("ignore_eos", &s::ignore_eos)
        .def_readwrite("typical_p", &s::typical_p)
        .def_readwrite("top_n_sigma", &s::top_n_sigma)
        .def_readwrite("xtc_probability", &s::xtc_probability)
        .def_readwrite("xtc_threshold", &s::xtc_threshold)
        .def_readwrite("dynatemp_range", &s::dynatemp_range)
        .def_readwrite("dynatemp_exponent", &s::dynatemp_exponent)
        .def_readwrite("dry_multiplier", &s::dry_multiplier)
        .def_readwrite("dry_base", &s::dry_base)
        .def_readwrite("dry_allowed_length", &s::dry_allowed_length)
        .def_readwrite("dry_penalty_last_n", &s::dry_penalty_last_n)
        .def_readwrite("dry_sequence_breakers", &s::dry_sequence_breakers)
        .def_property(
            "accept", [](const s & x) { return rules[size_t(x.accept)]; },
            [](s & x, const std::string & name) { x.accept = value_of<accept_rule>(rules, name); })
        .def_readwrite("posterior_threshold", &s::posterior_threshold)
        .def_readwrite("posterior_alpha", &s::posterior_alpha)
        .def_readwrite("accept_top", &s::accept_top)
        .def_readwrite("logit_bias", &s::logit_bias)
        .def_readwrite("grammar", &s::grammar)
        .def_readwrite("n_prompt", &s::n_prompt)
        .def_readwrite("n_left_out", &s::n_left_out);
}

} // namespace

void register_options(py::module_ & m) {
    register_model_options(m);
    register_engine_options(m);
    register_sampling(m);
    register_plan(m);
    register_synthetic(m);
}

} // namespace duo
