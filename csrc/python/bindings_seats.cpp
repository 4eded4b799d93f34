// The host's side of a link: weights, the host that serves them, and its seats.
#include <pybind11/stl.h>

#include "base/clock.h"
#include "base/error.h"
#include "bindings.h"
#include "bindings_remote.h"
#include "cpu_mask.h"
#include "engine.h"
#include "llama/lone_head.h"
#include "llama/stock_kernels.h"
#include "llama/weights_loader.h"
#include "load_watch.h"
#include "remote/draft_host.h"
#include "remote/verify_host.h"

namespace py = pybind11;
using namespace pybind11::literals;

namespace duo {

namespace {

using weights_ptr = std::shared_ptr<const model_weights>;

weights_ptr load_shared(model_options opt, bool is_draft, const py::object & progress) {
    ask_guard();
    return load_watched({&opt}, progress, [&] {
        check_cpus(opt);
        if (is_draft) {
            refuse_lone_head(opt.path);
        } else {
            prepare_stock_kernels(opt);
            opt.guesses = true;
        }
        return load_weights(opt, is_draft);
    });
}

// The Python class for the weights; const inside, because contexts share them.
struct shared_model {
    weights_ptr weights;
};

// A context of the weights, and what serves it to clients.
template <typename Host> struct served {
    explicit served(const weights_ptr & weights)
        : model(weights),
          host(model, weights->options.n_parallel, [cpus = weights->options.cpus] { begin_worker(cpus); }) {}

    llama_token_model model;
    Host              host;
};

// A place at a host, for one text at a time.
template <typename Host> struct seat {
    [[nodiscard]] Host & host() const { return at->host; }

    std::shared_ptr<served<Host>> at;
    int32_t                       place = 0;
};

void register_vocabulary(py::module_ & m) {
    py::class_<vocabulary, std::unique_ptr<vocabulary, delete_without_gil>>(m, "Vocabulary")
        .def_property_readonly("n_tokens", &vocabulary::n_tokens)
        .def_property_readonly("type", [](const vocabulary & v) { return int(llama_vocab_type(v.get())); })
        .def_property_readonly("bos", &vocabulary::bos)
        .def_property_readonly("eos", &vocabulary::eos)
        .def_property_readonly("add_bos", [](const vocabulary & v) { return llama_vocab_get_add_bos(v.get()); })
        .def_property_readonly("add_eos", [](const vocabulary & v) { return llama_vocab_get_add_eos(v.get()); })
        .def("hash", &vocabulary::hash, "first"_a, "n"_a)
        .def("text", [](const vocabulary & v, token_id t) { return py::bytes(v.text(t)); }, "token"_a);
}

void register_weights(py::module_ & m) {
    py::class_<shared_model, std::unique_ptr<shared_model, delete_without_gil>>(m, "SharedModel")
        .def(py::init([](const model_options & opt, bool is_draft, const py::object & progress) {
                 return new shared_model{load_shared(opt, is_draft, progress)};
             }),
             "options"_a, "is_draft"_a, "progress"_a = py::none())
        .def_property_readonly("path", [](const shared_model & s) { return path_text(s.weights->options.path); })
        .def_property_readonly("description", [](const shared_model & s) { return text_of(s.weights->description()); })
        .def_property_readonly("devices", [](const shared_model & s) { return s.weights->device_names(); })
        .def_property_readonly("n_bytes", [](const shared_model & s) { return s.weights->n_bytes(); })
        .def_property_readonly("n_ctx_train", [](const shared_model & s) { return s.weights->n_ctx_train(); })
        .def_property_readonly("n_vocab", [](const shared_model & s) { return s.weights->n_vocab(); })
        .def_property_readonly("warning", [](const shared_model & s) { return text_of(s.weights->warning); })
        .def_property_readonly("packed_file", [](const shared_model & s) { return path_text(s.weights->packed_file); })
        .def_property_readonly(
            "vocabulary", [](const shared_model & s) { return vocabulary(s.weights->model, s.weights->options.path); });
}

// A kind of host, and what its seats share with those of the other kind.
template <typename Host>
py::class_<seat<Host>> register_host(py::module_ & m, const char * host_name, const char * seat_name) {
    using h = served<Host>;
    using s = seat<Host>;
    py::class_<h, std::shared_ptr<h>>(m, host_name)
        .def(
            py::init([](const shared_model & w) { return std::shared_ptr<h>(new h(w.weights), delete_without_gil()); }),
            "model"_a, released)
        .def_property_readonly("n_ctx", [](const h & x) { return x.model.facts().n_ctx; })
        .def_property_readonly("seats",
                               [](const std::shared_ptr<h> & x) {
                                   std::vector<s> all;
                                   for (int32_t i = 0; i < x->host.n_places(); ++i) {
                                       all.push_back({x, i});
                                   }
                                   return all;
                               })
        .def("close", [](h & x) { x.host.close(); }, released);
    return py::class_<s>(m, seat_name)
        .def(
            "n_cached",
            [](const s & x, const std::vector<token_id> & prompt) { return x.host().n_cached(x.place, prompt); },
            "prompt"_a, released)
        .def("begin", [](s & x, const text_params & text) { x.host().begin(x.place, text); }, "text"_a, released);
}

void register_draft_host(py::module_ & m) {
    using d = seat<draft_host>;
    register_host<draft_host>(m, "DraftHost", "DraftSeat")
        .def(
            "give",
            [](d & x, const py::list & tuples) {
                const auto                   verdicts = verdicts_of(tuples);
                const py::gil_scoped_release working;
                x.host().give(x.place, verdicts);
            },
            "verdicts"_a)
        .def(
            "take",
            [](d & x, int64_t us) {
                std::vector<node_msg> nodes;
                {
                    const py::gil_scoped_release waiting;
                    x.host().take(x.place, nodes, now_us() + us);
                }
                return tuples_of(nodes);
            },
            "timeout_us"_a)
        .def(
            "end", [](d & x, int64_t us) { return x.host().end(x.place, now_us() + us); }, "timeout_us"_a, released)
        .def_property_readonly("taken", py::cpp_function([](const d & x) { return x.host().taken(x.place); }, released))
        .def_property_readonly("closed", [](const d & x) { return x.host().closed(); });
}

std::shared_ptr<const open_text> current(const seat<verify_host> & x) {
    const py::gil_scoped_release waiting;
    return x.host().current(x.place);
}

void register_verify_host(py::module_ & m) {
    using v = seat<verify_host>;
    register_host<verify_host>(m, "VerifyHost", "VerifySeat")
        .def(
            "give",
            [](v & x, const py::list & tuples) {
                const auto                   nodes = nodes_of(tuples);
                const py::gil_scoped_release working;
                x.host().give(x.place, nodes);
            },
            "nodes"_a)
        .def(
            "take",
            [](v & x, int64_t us) {
                std::vector<verdict_msg> verdicts;
                std::vector<chunk_msg>   chunks;
                {
                    const py::gil_scoped_release waiting;
                    x.host().take(x.place, verdicts, chunks, now_us() + us);
                }
                return py::make_tuple(tuples_of(verdicts), tuples_of(chunks));
            },
            "timeout_us"_a)
        .def(
            "cancel", [](v & x) { x.host().cancel(x.place); }, released)
        .def(
            "rtt", [](v & x, int64_t us) { x.host().rtt(x.place, us); }, "us"_a)
        .def_property_readonly("running",
                               py::cpp_function([](const v & x) { return x.host().running(x.place); }, released))
        .def_property_readonly("error",
                               [](const v & x) {
                                   const auto    text = current(x);
                                   const failure why  = text == nullptr ? failure{} : text->req().error;
                                   return py::make_tuple(text_of(why.sentence), error_codes[size_t(why.kind)]);
                               })
        .def("stats", [](v & x) {
            const auto text = current(x);
            return text == nullptr ? py::dict() : part_stats(text->req().stats);
        });
}

} // namespace

void register_seats(py::module_ & m) {
    register_vocabulary(m);
    register_weights(m);
    register_draft_host(m);
    register_verify_host(m);
}

} // namespace duo
