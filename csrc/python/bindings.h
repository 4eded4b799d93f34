// Parts of the extension module duo._core.
#pragma once

#include <optional>

#include <pybind11/pybind11.h>

#include "llama/model.h"
#include "plan/pair_profile.h"
#include "wires/usage.h"

namespace duo {

// For what waits for a lock or a message: who holds it may wait for the GIL.
inline const auto released = pybind11::call_guard<pybind11::gil_scoped_release>();

// For what joins threads or frees models when its last reference goes: a thread of it may be waiting for the GIL.
struct delete_without_gil {
    template <typename T> void operator()(T * p) const {
        std::optional<pybind11::gil_scoped_release> waiting;
        if (PyGILState_Check() != 0) {
            waiting.emplace();
        }
        delete p;
    }
};

// ModelOptions, EngineOptions, Sampling, Plan, SyntheticOptions.
void register_options(pybind11::module_ & m);

// Model: a view of a loaded model. Engine, and the texts that it writes.
void register_model(pybind11::module_ & m);
void register_engine(pybind11::module_ & m);

// SeenPrompt, Projector: pictures in prompts.
void register_pictures(pybind11::module_ & m);

// Errand: a job for the models between two texts.
void register_errand(pybind11::module_ & m);

// Embedder: a model that makes vectors of texts.
void register_embedder(pybind11::module_ & m);

// For `duo doctor` and the benchmarks: one model, pass by pass, and the kernels alone.
void register_probe(pybind11::module_ & m);

// Experts that are read before they are needed.
void register_experts(pybind11::module_ & m);

// Which buffer types and instruction sets are used.
void register_guard(pybind11::module_ & m);

// Call either with the GIL, before anything is computed on the CPU. They learn from a child process which products
// crash, so that this process does not try them. ask_guard raises DuoError (as error_already_set) if stock ggml cannot
// compute at all.
void ask_guard();
void hear_guard();

// GGML RPC: serves devices, and uses those of another machine.
void register_devices(pybind11::module_ & m);

// The ends of a link to another process, and the seats of a host.
void register_remote(pybind11::module_ & m);

// Names, metadata and error messages come from files: invalid UTF-8 in them must not cause another error.
pybind11::str text_of(const std::string & s);
// Decodes a path; invalid UTF-8 in it survives a round trip through os.fsencode.
pybind11::str path_text(const std::string & path);

// Headers and vocabularies of files that are not loaded.
void register_files(pybind11::module_ & m);

// A request's statistics and the planner's measurements, as Python reads them (duo.generation.result.timings).
pybind11::dict stats_of(const request & r, const pair_profile & profile);
const char *   name_of(stance s);

// What an engine holds, with the names of the C++ members.
pybind11::dict usage_of(const engine_usage & u);

// The figures of one part of a text, sent from one process to another and added to the whole. part_of throws
// duo::error.
pybind11::dict part_stats(const verify_stats & s);
verify_stats   part_of(const pybind11::dict & d);

} // namespace duo
