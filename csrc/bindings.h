// Parts of the extension module duo._core.
#pragma once

#include <pybind11/pybind11.h>

namespace duo {

// ModelOptions, EngineOptions, Sampling.
void register_options(pybind11::module_ & m);

// What `duo doctor` and the benchmarks look at: one model, pass by pass, and the kernels alone.
void register_probe(pybind11::module_ & m);

} // namespace duo
