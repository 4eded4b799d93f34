// Parts of the extension module duo._core.
#pragma once

#include <pybind11/pybind11.h>

#include "core/pair_profile.h"

namespace duo {

// ModelOptions, EngineOptions, Sampling, Plan, SyntheticOptions.
void register_options(pybind11::module_ & m);

// What `duo doctor` and the benchmarks look at: one model, pass by pass, and the kernels alone.
void register_probe(pybind11::module_ & m);

// GGML RPC: serving devices, and using another machine's.
void register_rpc(pybind11::module_ & m);

// A request's statistics and what the planner knows, as Python reads them (duo.result.timings).
pybind11::dict stats_of(const request & r, const pair_profile & profile);
const char *   name_of(stance s);

} // namespace duo
