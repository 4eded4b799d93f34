// Jobs for the models between two texts (duo.generation.errand).
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "base/error.h"
#include "bindings.h"
#include "model/errand.h"

namespace py = pybind11;
using namespace pybind11::literals;

namespace duo {

namespace {

// An errand that keeps the bytes that it was given alive.
struct py_errand : errand {
    py::bytes of_target, of_draft;
};

void give(cache_image & image, py::bytes & owner, std::vector<token_id> tokens, const py::bytes & saved) {
    owner        = saved;
    image.tokens = std::move(tokens);
    image.given  = std::string_view(saved);
}

// Without a copy.
py::memoryview view(const std::string & saved) {
    return py::memoryview::from_memory(saved.data(), py::ssize_t(saved.size()));
}

} // namespace

void register_errand(py::module_ & m) {
    using e = py_errand;
    py::class_<errand, std::shared_ptr<errand>>(m, "AnyErrand");
    py::class_<e, errand, std::shared_ptr<e>>(m, "Errand")
        .def(py::init([](const std::string & kind, int32_t n_keep, int32_t n_top) {
                 // A thread without the GIL may be the last one that has it.
                 const std::shared_ptr<e> x(new e, [](e * p) {
                     const py::gil_scoped_acquire held;
                     delete p;
                 });
                 x->what   = kind == "save"      ? errand::kind::save
                             : kind == "restore" ? errand::kind::restore
                             : kind == "erase"   ? errand::kind::erase
                             : kind == "score"   ? errand::kind::score
                                                 : errand::kind::look;
                 x->n_keep = n_keep;
                 x->n_top  = n_top;
                 return x;
             }),
             "kind"_a, py::kw_only(), "n_keep"_a = -1, "n_top"_a = 0)
        .def(
            "give_target",
            [](e & x, std::vector<token_id> tokens, const py::bytes & saved, lora_scales scales) {
                give(x.target, x.of_target, std::move(tokens), saved);
                x.target.scales = std::move(scales);
            },
            "tokens"_a, "saved"_a, "lora_scales"_a = lora_scales())
        .def_property_readonly("lora_scales", [](const e & x) { return x.target.scales; })
        .def(
            "give_draft",
            [](e & x, std::vector<token_id> tokens, const py::bytes & saved) {
                give(x.draft, x.of_draft, std::move(tokens), saved);
            },
            "tokens"_a, "saved"_a)
        .def_property_readonly("target_tokens", [](const e & x) { return x.target.tokens; })
        .def_property_readonly("draft_tokens", [](const e & x) { return x.draft.tokens; })
        .def_property_readonly("target_held", [](const e & x) { return x.target.held; })
        .def_property_readonly("draft_held", [](const e & x) { return x.draft.held; })
        .def(
            "target_saved", [](const e & x) { return view(x.target.saved); }, py::keep_alive<0, 1>())
        .def(
            "draft_saved", [](const e & x) { return view(x.draft.saved); }, py::keep_alive<0, 1>())
        .def_property_readonly("logprobs", [](const e & x) { return x.logp; })
        .def_property_readonly("top", [](const e & x) {
            std::vector<std::pair<token_id, float>> all;
            for (const candidate & c : x.top) {
                all.emplace_back(c.token, c.logp);
            }
            return all;
        });
}

} // namespace duo
