// What `duo doctor` and the benchmarks look at from Python: one model, pass by pass, and the kernels alone.
#pragma once

#include <pybind11/pybind11.h>

namespace duo {

void register_probe(pybind11::module_ & m);

} // namespace duo
