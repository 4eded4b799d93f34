// Applies the results of the products that a child process tried (src/duo/placement/guard.py).
#include <pybind11/stl.h>

#include "bindings.h"
#include "cpu/extra_buffers.h"
#include "cpu/kernel.h"

namespace py = pybind11;
using namespace pybind11::literals;

namespace duo {

void ask_guard() {
    py::module_::import("duo.placement.guard").attr("ensure")();
}

void hear_guard() {
    py::module_::import("duo.placement.guard").attr("find")();
}

void register_guard(py::module_ & m) {
    m.def("extra_buffers", [] {
        std::vector<std::string> names;
        for (ggml_backend_buffer_type_t b : cpu::extra_buffers()) {
            names.emplace_back(ggml_backend_buft_name(b));
        }
        return names;
    });
    m.def("usable_kernels", [] {
        std::vector<std::string> names;
        for (const cpu::kernel_set * k : cpu::usable_kernels()) {
            names.emplace_back(k->name);
        }
        return names;
    });
    m.def("refuse_kernels", &cpu::refuse_kernels, "names"_a);
    m.def("allow_extra_buffers", &cpu::allow_extra_buffers, "yes"_a);
    m.def("extra_buffers_allowed", &cpu::extra_buffers_allowed);
}

} // namespace duo
