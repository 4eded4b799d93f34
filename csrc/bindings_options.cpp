#include <pybind11/stl.h>

#include "bindings.h"
#include "engine.h"

namespace py = pybind11;

namespace duo {

void register_options(py::module_ & m) {
    using o = model_options;
    py::class_<o>(m, "ModelOptions")
        .def(py::init<>())
        .def_readwrite("path", &o::path)
        .def_readwrite("devices", &o::devices)
        .def_readwrite("n_gpu_layers", &o::n_gpu_layers)
        .def_readwrite("n_ctx", &o::n_ctx)
        .def_readwrite("n_ctx_most", &o::n_ctx_most)
        .def_readwrite("n_batch", &o::n_batch)
        .def_readwrite("n_ubatch", &o::n_ubatch)
        .def_readwrite("n_threads", &o::n_threads)
        .def_readwrite("n_threads_batch", &o::n_threads_batch)
        .def_readwrite("flash_attn", &o::flash_attn)
        .def_readwrite("type_k", &o::type_k)
        .def_readwrite("type_v", &o::type_v)
        .def_readwrite("load_mode", &o::load_mode)
        .def_readwrite("cpus", &o::cpus)
        .def_readwrite("strict", &o::strict)
        .def_readwrite("cpu_types", &o::cpu_types)
        .def_readwrite("override_tensors", &o::override_tensors);

    using e = engine_options;
    py::class_<e>(m, "EngineOptions")
        .def(py::init<>())
        .def_readwrite("target", &e::target)
        .def_readwrite("draft", &e::draft)
        .def_readwrite("tracing", &e::tracing)
        .def_readwrite("delay_us", &e::delay_us)
        .def_readwrite("delay_seed", &e::delay_seed);

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
        .def_readwrite("logit_bias", &s::logit_bias);
}

} // namespace duo
