// Reads properties of model files without loading them (duo.models.header, duo.placement.compatibility).
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "bindings.h"
#include "llama/file_header.h"
#include "llama/head_file.h"
#include "llama/head_rows.h"
#include "llama/lone_head.h"
#include "llama/memory.h"
#include "llama/model_header.h"
#include "llama/packed_file.h"
#include "llama/packed_header.h"
#include "llama/pair_check.h"
#include "llama/translation.h"
#include "llama/unpacked_file.h"
#include "llama/vocab_file.h"
#include "load_watch.h"

namespace py = pybind11;
using namespace pybind11::literals;

namespace duo {

py::str text_of(const std::string & s) {
    return py::reinterpret_steal<py::str>(PyUnicode_DecodeUTF8(s.data(), Py_ssize_t(s.size()), "replace"));
}

py::str path_text(const std::string & path) {
    return py::reinterpret_steal<py::str>(PyUnicode_DecodeFSDefault(path.c_str()));
}

namespace {

py::object value_of(const header_value & v) {
    if (const auto * s = std::get_if<std::string>(&v)) {
        return text_of(*s);
    }
    return std::visit([](const auto & x) { return py::cast(x); }, v);
}

py::dict header_of(const std::string & path) {
    const file_header h = [&] {
        const py::gil_scoped_release released;
        return read_file_header(path);
    }();
    py::dict values;
    for (const auto & [key, v] : h.values) {
        if (!std::holds_alternative<std::monostate>(v)) {
            values[text_of(key)] = value_of(v);
        }
    }
    py::list tensors;
    for (const header_tensor & t : h.tensors) {
        tensors.append(py::make_tuple(text_of(t.name), t.type, t.n_bytes, t.shape, t.part, t.offset));
    }
    py::list parts;
    for (const std::string & p : h.parts) {
        parts.append(py::bytes(p));
    }
    return py::dict("parts"_a = parts, "n_file_bytes"_a = h.n_file_bytes, "values"_a = values, "tensors"_a = tensors);
}

py::dict vocab_of(const vocab_file & f) {
    const llama_vocab * v   = f.get();
    const llama_token   bos = llama_vocab_bos(v);
    const llama_token   eos = llama_vocab_eos(v);
    return py::dict("type"_a = f.type(), "n_tokens"_a = llama_vocab_n_tokens(v), "bos"_a = bos,
                    "bos_text"_a = text_of(f.text(bos)), "add_bos"_a = llama_vocab_get_add_bos(v), "eos"_a = eos,
                    "eos_text"_a = text_of(f.text(eos)), "add_eos"_a = llama_vocab_get_add_eos(v),
                    "keeps_state"_a = f.keeps_state());
}

// The two vocabularies, their first difference, and why the draft does not fit; of a draft with another vocabulary,
// translation::shared().
py::dict vocab_check(const std::string & target, const std::string & draft, bool mtp) {
    const auto [t, d] = [&] {
        const py::gil_scoped_release released;
        return std::pair(vocab_file(target), vocab_file(draft));
    }();
    const std::string     difference = vocabulary_difference(t.get(), d.get());
    std::string           why        = difference.empty() ? "" : misfit(difference);
    std::optional<double> shared;
    if (!difference.empty() && !read_head_file(draft, mtp)) {
        const py::gil_scoped_release released;
        const translation            words(t.words(), d.words());
        shared = words.shared();
        why    = words.is_of_use() ? "" : why;
    }
    if (read_head_file(target)) {
        why = target + " is a draft head, which writes nothing alone; give it as the draft of the target that it was " +
              "made for";
    }
    if (const auto head = read_head_file(draft, mtp); head && why.empty()) {
        why = head_mismatch(draft, *head, target);
        why = why.empty() ? head_fault(draft, llama_vocab_n_tokens(d.get())) : why;
    }
    return py::dict("target"_a = vocab_of(t), "draft"_a = vocab_of(d), "mismatch"_a = text_of(why),
                    "difference"_a = text_of(difference), "shared"_a = shared);
}

// progress: as for an engine.
uint64_t pack(const std::string & model, const std::string & out, const std::pair<std::string, std::string> & origin,
              std::pair<std::string, std::vector<std::string>> packing, int n_threads, const py::object & progress,
              bool whole) {
    model_options watched;
    watched.path = model;
    return load_watched({&watched}, progress, [&] {
        return pack_model(model, out, {origin.first, origin.second},
                          {std::move(packing.first), std::move(packing.second)}, whole, n_threads,
                          watched.keep_loading);
    });
}

void unpack(const std::string & packed, const std::string & out, int n_threads, const py::object & progress) {
    model_options watched;
    watched.path = packed;
    load_watched({&watched}, progress, [&] {
        unpack_model(packed, out, n_threads, watched.keep_loading);
        return true;
    });
}

// What it says of its model, and the bytes of its packed weights.
std::pair<std::string, uint64_t> packed_facts(const std::string & path) {
    const py::gil_scoped_release released;
    const packed_file            file(path);
    uint64_t                     n = 0;
    for (const packed_tensor & t : file.header().tensors) {
        n += t.n_bytes;
    }
    return {file.header().origin.source, n};
}

// As many as the file has.
py::bytes bytes_of(const std::string & path, uint64_t from, size_t n) {
    const std::string bytes = [&] {
        const py::gil_scoped_release released;
        std::string                  found(n, '\0');
        found.resize(read_bytes(path, from, reinterpret_cast<uint8_t *>(found.data()), n));
        return found;
    }();
    return py::bytes(bytes);
}

} // namespace

void register_files(py::module_ & m) {
    m.def("read_header", &header_of, "path"_a);
    m.def("architecture_of", &architecture_of, "path"_a, py::call_guard<py::gil_scoped_release>());
    m.def("refuse_lone_head", &refuse_lone_head, "path"_a);
    m.def("vocab_check", &vocab_check, "target"_a, "draft"_a, "mtp"_a = false);
    m.def("memory_available", &memory_available, "root"_a = "");
    m.def("pack_model", &pack, "model"_a, "out"_a, "origin"_a, "packing"_a, "n_threads"_a, "progress"_a = py::none(),
          "whole"_a = false);
    m.def("unpack_model", &unpack, "packed"_a, "out"_a, "n_threads"_a, "progress"_a = py::none());
    m.def("is_packed_file", &is_packed_file, "path"_a, py::call_guard<py::gil_scoped_release>());
    m.def("may_be_whole", &may_be_whole, "path"_a, py::call_guard<py::gil_scoped_release>());
    m.def("packed_facts", &packed_facts, "path"_a);
    m.def("read_bytes", &bytes_of, "path"_a, "offset"_a, "n"_a);
    m.attr("PACKED_VERSION") = packed_version;
    m.attr("WHOLE_VERSION")  = whole_version;
}

} // namespace duo
