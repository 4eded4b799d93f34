// The host's side of a link: weights that several seats share, and the seats.
#include <pybind11/stl.h>

#include "bindings.h"
#include "bindings_remote.h"
#include "core/clock.h"
#include "core/draft_seat.h"
#include "core/verify_seat.h"
#include "engine.h"
#include "error.h"
#include "llama/stock_kernels.h"
#include "load_watch.h"

namespace py = pybind11;
using namespace pybind11::literals;

namespace duo {

namespace {

using model_ptr = std::shared_ptr<const llama_token_model>;

model_ptr load_weights(model_options opt, bool is_draft, const py::object & progress) {
    ask_guard();
    return load_watched({&opt}, progress, [&]() -> model_ptr {
        check_cpus(opt.cpus);
        if (!is_draft) {
            prepare_stock_kernels(opt);
        }
        return std::make_shared<llama_token_model>(opt, is_draft, false);
    });
}

// The Python class for the weights; const inside, because all seats read them.
struct shared_model {
    model_ptr model;
};

// A seat and its context.
template <typename Seat> struct seated {
    explicit seated(const model_ptr & weights)
        : model(weights->with_new_context()), seat(model, [cpus = weights->options().cpus] { pin_this_thread(cpus); }) {
        model.require_rollback("it cannot be served");
    }

    llama_token_model model;
    Seat              seat;
};

void register_vocabulary(py::module_ & m) {
    py::class_<vocabulary>(m, "Vocabulary")
        .def_property_readonly("n_tokens", [](const vocabulary & v) { return v.get().n_vocab(); })
        .def_property_readonly("type", [](const vocabulary & v) { return int(llama_vocab_type(v.get().vocab())); })
        .def_property_readonly("bos", [](const vocabulary & v) { return llama_vocab_bos(v.get().vocab()); })
        .def_property_readonly("eos", [](const vocabulary & v) { return llama_vocab_eos(v.get().vocab()); })
        .def_property_readonly("add_bos", [](const vocabulary & v) { return llama_vocab_get_add_bos(v.get().vocab()); })
        .def_property_readonly("add_eos", [](const vocabulary & v) { return llama_vocab_get_add_eos(v.get().vocab()); })
        .def(
            "hash", [](const vocabulary & v, int32_t first, int32_t n) { return v.get().vocab_hash(first, n); },
            "first"_a, "n"_a)
        .def("text", [](const vocabulary & v, token_id t) { return py::bytes(v.get().token_text(t)); }, "token"_a);
}

void register_weights(py::module_ & m) {
    py::class_<shared_model>(m, "SharedModel")
        .def(py::init([](const model_options & opt, bool is_draft, const py::object & progress) {
                 return shared_model{load_weights(opt, is_draft, progress)};
             }),
             "options"_a, "is_draft"_a, "progress"_a = py::none())
        .def_property_readonly("path", [](const shared_model & s) { return path_text(s.model->options().path); })
        .def_property_readonly("description", [](const shared_model & s) { return text_of(s.model->description()); })
        .def_property_readonly("devices", [](const shared_model & s) { return s.model->device_names(); })
        .def_property_readonly("n_bytes", [](const shared_model & s) { return s.model->n_bytes(); })
        .def_property_readonly("n_ctx_train", [](const shared_model & s) { return s.model->n_ctx_train(); })
        .def_property_readonly("n_vocab", [](const shared_model & s) { return s.model->n_vocab(); })
        .def_property_readonly("warning", [](const shared_model & s) { return text_of(s.model->warning()); })
        .def_property_readonly("vocabulary", [](const shared_model & s) { return vocabulary(s.model); });
}

const auto released = py::call_guard<py::gil_scoped_release>();

// The members that both kinds of seats share.
template <typename Seat> py::class_<seated<Seat>> register_seat(py::module_ & m, const char * name) {
    using s = seated<Seat>;
    return py::class_<s>(m, name)
        .def(py::init([](const shared_model & w) { return std::make_unique<s>(w.model); }), "model"_a, released)
        .def_property_readonly("n_ctx", [](const s & x) { return x.model.n_ctx(); })
        .def(
            "n_cached", [](const s & x, const std::vector<token_id> & prompt) { return x.seat.n_cached(prompt); },
            "prompt"_a)
        .def(
            "begin", [](s & x, const text_params & text) { x.seat.begin(text); }, "text"_a, released)
        .def("close", [](s & x) { x.seat.close(); }, released);
}

void register_draft_seat(py::module_ & m) {
    using d = seated<draft_seat>;
    register_seat<draft_seat>(m, "DraftSeat")
        .def(
            "give",
            [](d & x, const py::list & tuples) {
                const auto                   verdicts = verdicts_of(tuples);
                const py::gil_scoped_release working;
                x.seat.give(verdicts);
            },
            "verdicts"_a)
        .def(
            "take",
            [](d & x, int64_t us) {
                std::vector<node_msg> nodes;
                {
                    const py::gil_scoped_release waiting;
                    x.seat.take(nodes, now_us() + us);
                }
                return tuples_of(nodes);
            },
            "timeout_us"_a)
        .def(
            "end", [](d & x, int64_t us) { return x.seat.end(now_us() + us); }, "timeout_us"_a, released)
        .def_property_readonly("taken", [](const d & x) { return x.seat.taken(); })
        .def_property_readonly("closed", [](const d & x) { return x.seat.closed(); });
}

void register_verify_seat(py::module_ & m) {
    using v = seated<verify_seat>;
    register_seat<verify_seat>(m, "VerifySeat")
        .def(
            "give",
            [](v & x, const py::list & tuples) {
                const auto                   nodes = nodes_of(tuples);
                const py::gil_scoped_release working;
                x.seat.give(nodes);
            },
            "nodes"_a)
        .def(
            "take",
            [](v & x, int64_t us) {
                std::vector<verdict_msg> verdicts;
                std::vector<chunk_msg>   chunks;
                {
                    const py::gil_scoped_release waiting;
                    x.seat.take(verdicts, chunks, now_us() + us);
                }
                return py::make_tuple(tuples_of(verdicts), tuples_of(chunks));
            },
            "timeout_us"_a)
        .def(
            "cancel", [](v & x) { x.seat.cancel(); }, released)
        .def(
            "rtt", [](v & x, int64_t us) { x.seat.rtt(us); }, "us"_a)
        .def_property_readonly("running", [](const v & x) { return x.seat.running(); })
        .def_property_readonly("error",
                               [](const v & x) {
                                   const failure why =
                                       x.seat.current() == nullptr ? failure{} : x.seat.current()->error;
                                   return py::make_tuple(text_of(why.sentence), error_codes[size_t(why.kind)]);
                               })
        .def("stats",
             [](v & x) { return x.seat.current() == nullptr ? py::dict() : part_stats(x.seat.current()->stats); });
}

} // namespace

void register_seats(py::module_ & m) {
    register_vocabulary(m);
    register_weights(m);
    register_draft_seat(m);
    register_verify_seat(m);
}

} // namespace duo
