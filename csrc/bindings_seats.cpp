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
    opt.keep_loading = [watch = std::make_shared<load_watch>(progress, opt.path)](float share) {
        return (*watch)(share);
    };
    try {
        std::shared_ptr<llama_token_model> model;
        {
            const py::gil_scoped_release released;
            check_cpus(opt.cpus);
            if (!is_draft) {
                prepare_stock_kernels(opt);
            }
            model = std::make_shared<llama_token_model>(opt, is_draft, false);
        }
        opt.keep_loading = nullptr;
        return model;
    } catch (const error &) {
        opt.keep_loading = nullptr;
        if (PyErr_Occurred() != nullptr) {
            throw py::error_already_set();
        }
        throw;
    }
}

// A seat with the context that it works on.
template <typename Seat> struct seated {
    explicit seated(const model_ptr & weights)
        : model(*weights), seat(model, [cpus = weights->options().cpus] { pin_this_thread(cpus); }) {
        if (!model.can_rollback()) {
            throw error(weights->options().path +
                        " keeps a recurrent state that cannot be rolled back after a wrong guess; it cannot be served");
        }
    }

    llama_token_model model;
    Seat              seat;
};

void register_weights(py::module_ & m) {
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

    // Python's class of the weights; const inside, as all seats read them.
    struct shared {
        model_ptr model;
    };
    py::class_<shared>(m, "SharedModel")
        .def(py::init([](const model_options & opt, bool is_draft, const py::object & progress) {
                 return shared{load_weights(opt, is_draft, progress)};
             }),
             "options"_a, "is_draft"_a, "progress"_a = py::none())
        .def_property_readonly("path",
                               [](const shared & s) {
                                   return py::reinterpret_steal<py::str>(
                                       PyUnicode_DecodeFSDefault(s.model->options().path.c_str()));
                               })
        .def_property_readonly("description", [](const shared & s) { return text_of(s.model->description()); })
        .def_property_readonly("devices", [](const shared & s) { return s.model->device_names(); })
        .def_property_readonly("n_bytes", [](const shared & s) { return s.model->n_bytes(); })
        .def_property_readonly("n_ctx_train", [](const shared & s) { return s.model->n_ctx_train(); })
        .def_property_readonly("n_vocab", [](const shared & s) { return s.model->n_vocab(); })
        .def_property_readonly("warning", [](const shared & s) { return text_of(s.model->warning()); })
        .def_property_readonly("vocabulary", [](const shared & s) { return vocabulary(s.model); });

    const auto released = py::call_guard<py::gil_scoped_release>();
    using d             = seated<draft_seat>;
    py::class_<d>(m, "DraftSeat")
        .def(py::init([](const shared & s) { return std::make_unique<d>(s.model); }), "model"_a, released)
        .def_property_readonly("n_ctx", [](const d & x) { return x.model.n_ctx(); })
        .def(
            "n_cached", [](const d & x, const std::vector<token_id> & prompt) { return x.seat.n_cached(prompt); },
            "prompt"_a)
        .def(
            "begin", [](d & x, const text_params & text) { x.seat.begin(text); }, "text"_a, released)
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
        .def_property_readonly("closed", [](const d & x) { return x.seat.closed(); })
        .def("close", [](d & x) { x.seat.close(); }, released);

    using v = seated<verify_seat>;
    py::class_<v>(m, "VerifySeat")
        .def(py::init([](const shared & s) { return std::make_unique<v>(s.model); }), "model"_a, released)
        .def_property_readonly("n_ctx", [](const v & x) { return x.model.n_ctx(); })
        .def(
            "n_cached", [](const v & x, const std::vector<token_id> & prompt) { return x.seat.n_cached(prompt); },
            "prompt"_a)
        .def(
            "begin", [](v & x, const text_params & text) { x.seat.begin(text); }, "text"_a, released)
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
        .def_property_readonly(
            "error", [](const v & x) { return text_of(x.seat.current() == nullptr ? "" : x.seat.current()->error); })
        .def("stats",
             [](v & x) { return x.seat.current() == nullptr ? py::dict() : part_stats(x.seat.current()->stats); })
        .def("close", [](v & x) { x.seat.close(); }, released);
}

} // namespace

void register_seats(py::module_ & m) {
    register_weights(m);
}

} // namespace duo
