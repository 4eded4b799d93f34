#include <pybind11/stl.h>

#include <llama.h>

#include "bindings.h"
#include "llama/device.h"
#include "llama/rpc_host.h"

namespace py = pybind11;
using namespace pybind11::literals;

namespace duo {

void register_devices(py::module_ & m) {
    m.def("devices", [] {
        py::list all;
        for (const device_info & d : list_devices()) {
            all.append(py::make_tuple(d.name, d.description, d.type, d.n_free, d.n_total, d.id));
        }
        return all;
    });
    m.def(
        "rpc_serve",
        [](const std::string & endpoint, const py::bytes & cache_dir, int n_threads,
           const std::vector<std::string> & devices) {
            ask_guard();
            const std::string            dir = cache_dir;
            const py::gil_scoped_release released;
            rpc_serve(endpoint, dir, n_threads, devices);
        },
        "endpoint"_a, "cache_dir"_a, "n_threads"_a, "devices"_a);
    m.def("supports_rpc", [] { return llama_supports_rpc(); });
    m.def("rpc_connect", &rpc_connect, "endpoint"_a, py::call_guard<py::gil_scoped_release>());
    m.def("rpc_memory", &rpc_memory, "name"_a, py::call_guard<py::gil_scoped_release>());
}

} // namespace duo
