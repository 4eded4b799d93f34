// Pictures in prompts.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "bindings.h"
#include "engine.h"

namespace py = pybind11;
using namespace pybind11::literals;

namespace duo {

namespace {

using media_ptr = std::shared_ptr<media>;

// Text as str, the others as Media.
std::vector<prompt_part> parts_of(const py::sequence & given) {
    std::vector<prompt_part> parts;
    for (const py::handle part : given) {
        if (py::isinstance<media>(part)) {
            parts.emplace_back(std::shared_ptr<const media>(part.cast<media_ptr>()));
        } else {
            parts.emplace_back(py::cast<std::string>(part.cast<py::str>()));
        }
    }
    return parts;
}

std::span<const char> bytes_of(const py::buffer_info & info) {
    return {static_cast<const char *>(info.ptr), size_t(info.size * info.itemsize)};
}

} // namespace

void register_pictures(py::module_ & m) {
    using s = seen_prompt;
    py::class_<s>(m, "SeenPrompt").def_property_readonly("tokens", [](const s & x) { return x.tokens; });
    m.attr("FIRST_PICTURE_ID") = first_picture_id;

    py::class_<media, media_ptr>(m, "Media")
        .def_static(
            "picture",
            [](const py::buffer & pixels, uint32_t width, uint32_t height, const std::string & id) {
                const py::buffer_info        info = pixels.request();
                const py::gil_scoped_release released;
                return std::make_shared<media>(media::picture(bytes_of(info), width, height, id));
            },
            "pixels"_a, "width"_a, "height"_a, "id"_a)
        .def_static(
            "sound",
            [](const py::buffer & samples, const std::string & id) {
                const py::buffer_info        info = samples.request();
                const py::gil_scoped_release released;
                return std::make_shared<media>(media::sound(bytes_of(info), id));
            },
            "samples"_a, "id"_a)
        .def_property_readonly("n_bytes", &media::n_bytes);

    using p = projector;
    py::class_<p, std::shared_ptr<p>>(m, "Projector")
        .def_property_readonly("sees", &p::sees)
        .def_property_readonly("rate", &p::rate)
        .def(
            "read",
            [](const p & x, const py::sequence & given, bool add_special, bool parse_special) {
                const auto                   parts = parts_of(given);
                const py::gil_scoped_release released;
                return x.read(parts, add_special, parse_special);
            },
            "parts"_a, "add_special"_a = true, "parse_special"_a = false);

    using o = projector_options;
    py::class_<o>(m, "ProjectorOptions")
        .def(py::init<>())
        .def_property(
            "path", [](const o & x) { return py::bytes(x.path); },
            [](o & x, const std::string & path) { x.path = path; })
        .def_readwrite("offload", &o::offload)
        .def_readwrite("device", &o::device)
        .def_readwrite("n_threads", &o::n_threads)
        .def_readwrite("min_rows", &o::min_rows)
        .def_readwrite("max_rows", &o::max_rows);
}

} // namespace duo
