// Texts as vectors.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>

#include "bindings.h"
#include "llama/embedder.h"
#include "load_watch.h"

namespace py = pybind11;
using namespace pybind11::literals;

namespace duo {

namespace {

py::array_t<float> array_of(const std::vector<std::vector<float>> & rows, int32_t width) {
    py::array_t<float> out({py::ssize_t(rows.size()), py::ssize_t(width)});
    for (size_t i = 0; i < rows.size(); ++i) {
        std::copy(rows[i].begin(), rows[i].end(), out.mutable_data(py::ssize_t(i), 0));
    }
    return out;
}

using embedder_ptr = std::unique_ptr<embedder, delete_without_gil>;

} // namespace

void register_embedder(py::module_ & m) {
    py::class_<embedder, embedder_ptr>(m, "Embedder")
        .def(py::init([](model_options options, const std::string & pooling, const py::object & progress) {
                 ask_guard();
                 return load_watched({&options}, progress,
                                     [&] { return embedder_ptr(new embedder(options, pooling)); });
             }),
             "options"_a, "pooling"_a = "", "progress"_a = py::none())
        .def(
            "passes",
            [](const embedder & e, const std::vector<std::vector<token_id>> & texts) { return e.passes(texts); },
            "texts"_a)
        .def(
            "embed",
            [](embedder & e, const std::vector<std::vector<token_id>> & texts) {
                std::vector<std::vector<float>> rows;
                {
                    const py::gil_scoped_release waiting;
                    rows = e.embed(texts, [] {
                        const py::gil_scoped_acquire held;
                        if (PyErr_CheckSignals() != 0) {
                            throw py::error_already_set();
                        }
                        return true;
                    });
                }
                return array_of(rows, e.n_out());
            },
            "texts"_a)
        .def("stop", &embedder::stop)
        .def_property_readonly("n_out", &embedder::n_out)
        .def_property_readonly("n_most", &embedder::n_most)
        .def_property_readonly("pooling", &embedder::pooling)
        .def_property_readonly("rerank_template", &embedder::rerank_template)
        .def_property_readonly("around_pair", &embedder::around_pair);
}

} // namespace duo
