// Parts of the extension module duo._core.
#pragma once

#include <pybind11/pybind11.h>

#include "core/pair_profile.h"
#include "llama/model.h"

namespace duo {

// ModelOptions, EngineOptions, Sampling, Plan, SyntheticOptions.
void register_options(pybind11::module_ & m);

// What `duo doctor` and the benchmarks look at: one model, pass by pass, and the kernels alone.
void register_probe(pybind11::module_ & m);

// Buffer types and instruction sets that are used, or not.
void register_guard(pybind11::module_ & m);

// Both with the GIL, before anything is computed on the CPU: from then on products that end a process here are not
// tried in this one. ask_guard raises DuoError (as error_already_set) where stock ggml cannot compute at all.
void ask_guard();
void hear_guard();

// GGML RPC: serving devices, and using another machine's.
void register_rpc(pybind11::module_ & m);

// The ends of a link to another process, and the seats of a host.
void register_remote(pybind11::module_ & m);

// A model's vocabulary, compared across processes.
class vocabulary {
  public:
    explicit vocabulary(std::shared_ptr<const llama_token_model> model) : model_(std::move(model)) {}

    [[nodiscard]] const llama_token_model & get() const { return *model_; }

  private:
    std::shared_ptr<const llama_token_model> model_;
};

// Names, metadata and error messages come from files: what is not UTF-8 in them must not become another error.
pybind11::str text_of(const std::string & s);
// And what is not UTF-8 in a path comes back as os.fsencode took it.
pybind11::str path_text(const std::string & path);

// Headers and vocabularies of files that are not loaded.
void register_files(pybind11::module_ & m);

// A request's statistics and what the planner knows, as Python reads them (duo.text.result.timings).
pybind11::dict stats_of(const request & r, const pair_profile & profile);
const char *   name_of(stance s);

// The figures that one part of a text adds to the whole, from one process to another. part_of throws duo::error.
pybind11::dict part_stats(const verify_stats & s);
verify_stats   part_of(const pybind11::dict & d);

} // namespace duo
