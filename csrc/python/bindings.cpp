// pybind11 only: no logic. The GIL is released wherever a call may take long.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <array>

#include <ggml.h>
#include <llama.h>

#include "base/clock.h"
#include "base/error.h"
#include "bindings.h"
#include "bindings_remote.h"
#include "cpu/ggml_device.h"
#include "cpu/ggml_plugins.h"
#include "llama/chat_template.h"
#include "llama/log.h"
#include "model/grammar_limits.h"
#include "token_hooks.h"

namespace py = pybind11;
using namespace pybind11::literals;

PYBIND11_MODULE(_core, m) {
    // Kept for the life of the process, as the module is. By error_kind.
    static const auto classes = [] {
        constexpr std::array names = {"DuoError",        "BadValueError", "UnknownModelError", "ContextFullError",
                                      "DoesNotFitError", "BusyError",     "PeerLostError",     "CancelledError"};
        static_assert(names.size() == size_t(duo::error_kind::cancelled) + 1);
        const py::module_                    errors = py::module_::import("duo.errors");
        std::array<PyObject *, names.size()> found{};
        for (size_t i = 0; i < names.size(); ++i) {
            found[i] = py::object(errors.attr(names[i])).release().ptr();
        }
        return found;
    }();
    py::register_exception_translator([](std::exception_ptr p) {
        try {
            if (p) {
                std::rethrow_exception(p);
            }
        } catch (const duo::error & e) {
            PyErr_SetObject(classes[size_t(e.kind())], duo::text_of(e.what()).ptr());
        }
    });

    duo::log_install();
    duo::cpu::load_plugins();
    llama_backend_init();

    m.attr("N_DRAFT_AUTO")    = duo::n_draft_auto;
    m.attr("N_DRAFT_MAX")     = duo::n_draft_cap;
    m.attr("N_STEP_MAX")      = duo::n_step_cap;
    m.attr("PROFILE_VERSION") = duo::profile_version;
    m.def(
        "check_llama",
        [](const std::string & release) {
            duo::cpu::set_release(release);
            const duo::cpu::ggml_build built{DUO_GGML_COMMIT, DUO_GGML_VERSION, DUO_LLAMA_RELEASE};
            const duo::cpu::ggml_build loaded = duo::cpu::loaded_build();
            return py::make_tuple(same_source(built, loaded), description(built), description(loaded));
        },
        "release"_a);
    m.def("ggml_commit", [] { return std::string(ggml_commit()); });
    m.def(
        "use_numa",
        [](const std::string & kind) {
            llama_numa_init(kind == "isolate"   ? GGML_NUMA_STRATEGY_ISOLATE
                            : kind == "numactl" ? GGML_NUMA_STRATEGY_NUMACTL
                            : kind == "mirror"  ? GGML_NUMA_STRATEGY_MIRROR
                                                : GGML_NUMA_STRATEGY_DISTRIBUTE);
        },
        "kind"_a);
    m.def("now_us", [] { return duo::now_us(); });
    m.def("log_to", &duo::log_to, "to_stderr"_a, "path"_a, py::call_guard<py::gil_scoped_release>());
    m.def(
        "log_style",
        [](bool prefix, bool timestamps, bool jsonl) {
            duo::set_log_style({.prefix = prefix, .timestamps = timestamps, .jsonl = jsonl});
        },
        py::kw_only(), "prefix"_a, "timestamps"_a, "jsonl"_a, py::call_guard<py::gil_scoped_release>());
    m.def("take_log", &duo::log_install);
    m.def("noise", &duo::gumbel_noise, "seed"_a, "pos"_a, "token"_a);
    duo::register_probe(m);
    duo::register_experts(m);
    duo::register_files(m);
    duo::register_guard(m);
    duo::register_devices(m);
    m.def(
        "reads_grammar", [](const std::string & gbnf) { return duo::grammar::reads(nullptr, gbnf); }, "gbnf"_a,
        py::call_guard<py::gil_scoped_release>());
    m.def("grammar_too_large", &duo::grammar_too_large, "gbnf"_a);
    m.def("chat_templates", &duo::chat_template_names);
    m.def(
        "apply_chat_template",
        [](const std::string & name, const std::vector<duo::chat_message> & messages, bool add_assistant) {
            return duo::text_of(duo::apply_chat_template(name, messages, add_assistant));
        },
        "name"_a, "messages"_a, "add_assistant"_a);
    duo::register_pictures(m);
    duo::register_options(m);
    duo::register_remote(m);
    duo::register_model(m);
    duo::register_errand(m);
    duo::register_token_hooks(m);
    duo::register_embedder(m);
    duo::register_engine(m);
}
