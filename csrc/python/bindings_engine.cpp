// The engine, its texts and its two models, as Python sees them.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <functional>
#include <optional>
#include <type_traits>

#include "base/error.h"
#include "bindings.h"
#include "bindings_remote.h"
#include "engine.h"
#include "load_watch.h"
#include "model_view.h"
#include "text_handle.h"
#include "token_hooks.h"

namespace py = pybind11;
using namespace pybind11::literals;

namespace duo {

namespace {

using engine_ptr = std::unique_ptr<engine, delete_without_gil>;

engine_ptr load(engine_options opt, const py::object & progress) {
    ask_guard();
    return load_watched({&opt.target, &opt.draft}, progress, [&] { return engine_ptr(new engine(opt)); });
}

const char * name_of(trace_event::kind k) {
    constexpr const char * names[] = {"prompt", "verify", "draft", "wait"};
    return names[size_t(k)];
}

py::tuple event_tuple(const char * lane, const trace_event & e) {
    return py::make_tuple(name_of(e.what), lane, e.t0_us, e.t1_us, e.slot, e.n_rows, e.n_accepted, e.n_drafted, e.hit,
                          e.depth, e.n_branch, e.expected, name_of(e.stance_now));
}

std::optional<model_view> view_of(const std::shared_ptr<const llama_token_model> & model) {
    return model ? std::optional<model_view>(model) : std::nullopt;
}

} // namespace

void register_model(py::module_ & m) {
    using w = model_weights;
    using v = model_view;
    py::class_<v>(m, "Model")
        .def_property_readonly("path", [](const v & x) { return path_text(x.get()->weights().options.path); })
        .def_property_readonly("description", [](const v & x) { return text_of(x.get()->weights().description()); })
        .def_property_readonly("devices", &v::of_weights<&w::device_names>)
        .def_property_readonly("helpers", &v::of_weights<&w::helper_names>)
        .def_property_readonly("n_bytes", &v::of_weights<&w::n_bytes>)
        .def_property_readonly("n_ctx", [](const v & x) { return x.get()->facts().n_ctx; })
        .def_property_readonly("n_ctx_train", &v::of_weights<&w::n_ctx_train>)
        .def_property_readonly("n_vocab", [](const v & x) { return x.get()->facts().n_vocab; })
        .def_property_readonly("n_threads", [](const v & x) { return x.get()->weights().options.n_threads; })
        .def_property_readonly("can_rollback", [](const v & x) { return x.get()->facts().undo == undo_kind::cells; })
        .def_property_readonly("has_mtp", &v::of_weights<&w::has_mtp>)
        .def_property_readonly("head", &v::of_weights<&w::head_name>)
        .def_property_readonly("same_bits", &v::of_weights<&w::same_bits>)
        .def_property_readonly("n_duo_products", [](const v & x) { return x.get()->weights().kernels.n_duo; })
        .def_property_readonly("n_cpu_products", [](const v & x) { return x.get()->weights().kernels.n_cpu; })
        .def_property_readonly("stock_types", [](const v & x) { return x.get()->weights().kernels.stock_types; })
        .def_property_readonly("packed_as", [](const v & x) { return x.get()->weights().kernels.packed_as; })
        .def_property_readonly("packed_file", [](const v & x) { return path_text(x.get()->weights().packed_file); })
        .def_property_readonly("lost_file", [](const v & x) { return path_text(x.get()->weights().lost_file()); })
        .def_property_readonly("n_read_ahead", &v::of_weights<&w::n_read_ahead>)
        .def_property_readonly("n_proposed", [](const v & x) { return x.get()->facts().n_proposed; })
        .def_property_readonly("n_setups",
                               [](const v & x) {
                                   const auto m = x.get();
                                   return m->sampler() != nullptr ? m->sampler()->n_setups() : 0;
                               })
        .def_property_readonly("token_bos", [](const v & x) { return x.get()->vocabulary.bos(); })
        .def_property_readonly("token_eos", [](const v & x) { return x.get()->vocabulary.eos(); })
        .def_property_readonly("fim_tokens",
                               [](const v & x) {
                                   const auto          m     = x.get();
                                   const llama_vocab * vocab = m->vocabulary.get();
                                   return py::make_tuple(llama_vocab_fim_pre(vocab), llama_vocab_fim_suf(vocab),
                                                         llama_vocab_fim_mid(vocab));
                               })
        .def_property_readonly("repository_tokens",
                               [](const v & x) {
                                   const auto          m     = x.get();
                                   const llama_vocab * vocab = m->vocabulary.get();
                                   return py::make_tuple(llama_vocab_fim_rep(vocab), llama_vocab_fim_sep(vocab));
                               })
        .def_property_readonly("warning", [](const v & x) { return text_of(x.get()->weights().warning); })
        .def_property_readonly("projector", [](const v & x) { return x.get()->eyes; })
        .def_property_readonly("vocabulary", [](const v & x) { return x.get()->vocabulary; })
        .def(
            "is_end", [](const v & x, token_id id) { return x.get()->is_end(id); }, "token"_a)
        .def(
            "reads_grammar",
            [](const v & x, const std::string & gbnf) { return grammar::reads(x.get()->vocabulary.get(), gbnf); },
            "gbnf"_a, py::call_guard<py::gil_scoped_release>())
        .def(
            "meta", [](const v & x, const std::string & key) { return text_of(x.get()->weights().meta(key)); }, "key"_a)
        .def(
            "piece",
            [](const v & x, token_id id, bool special) { return py::bytes(x.get()->vocabulary.piece(id, special)); },
            "token"_a, "special"_a = false)
        .def(
            "written",
            [](const v & x, token_id id) {
                const auto m = x.get();
                return py::bytes(id < m->facts().n_vocab ? m->piece(id) : std::string());
            },
            "token"_a)
        .def(
            "tokenize",
            [](const v & x, const std::string & text, bool add_special, bool parse_special) {
                return x.get()->vocabulary.tokenize(text, add_special, parse_special);
            },
            "text"_a, "add_special"_a = true, "parse_special"_a = false, py::call_guard<py::gil_scoped_release>());
}

namespace {

// What f says of the measurements.
template <typename F> auto of_plans(const engine & e, const F & f) {
    std::invoke_result_t<F, planner &> out{};
    e.with_plans([&](planner & p) { out = f(p); });
    return out;
}

} // namespace

void register_engine(py::module_ & m) {
    using c = text_chunk;
    py::class_<c>(m, "TextChunk")
        .def_readonly("text", &c::text)
        .def_readonly("token", &c::token)
        .def_readonly("from_draft", &c::from_draft)
        .def_property_readonly("finish", [](const c & x) { return name_of(x.finish); })
        .def_readonly("logprob", &c::logp)
        .def_property_readonly("top",
                               [](const c & x) {
                                   std::vector<std::pair<token_id, float>> top;
                                   for (const auto & k : x.top) {
                                       top.emplace_back(k.token, k.logp);
                                   }
                                   return top;
                               })
        .def_readonly("t_us", &c::t_us);

    // A text that was begun. Its reader keeps it.
    py::class_<text_handle>(m, "Text")
        .def_property_readonly("place", [](const text_handle & x) { return x.get().req().place.load(); })
        .def_property_readonly("n_cached", [](const text_handle & x) { return x.get().req().n_cached.load(); })
        // The link that has this number carries it. Known when the text's first chunk has come, and as a rule before.
        .def_property_readonly("slot", [](const text_handle & x) { return x.get().req().slot; })
        // Complete after the chunk that has finish set.
        .def("stats", [](const text_handle & x) {
            static const pair_profile nothing;
            const request &           r = x.get().req();
            return stats_of(r, r.learned ? *r.learned : nothing);
        });

    py::class_<engine, engine_ptr>(m, "Engine")
        .def(py::init(&load), "options"_a, "progress"_a = py::none())
        .def(py::init<const synthetic_options &>(), "options"_a, py::call_guard<py::gil_scoped_release>())
        .def_property_readonly("target", [](const engine & e) { return view_of(e.target()); })
        .def_property_readonly("draft", [](const engine & e) { return view_of(e.draft()); })
        .def_property_readonly("draft_links", &engine::links_to_draft)
        .def_property_readonly("target_links", &engine::links_to_target)
        .def_property_readonly("running", py::cpp_function(&engine::running, released))
        .def_property_readonly("shared_vocabulary", &engine::shared_vocabulary)
        // Of the target's adapters, for what begins later.
        .def_property(
            "lora_scales", [](engine & e) { return e.scales().get(); },
            [](engine & e, const lora_scales & scales) { e.scales().set(scales); })
        .def_property_readonly("usage",
                               [](const engine & e) {
                                   engine_usage now;
                                   {
                                       const py::gil_scoped_release waiting;
                                       now = e.usage();
                                   }
                                   return usage_of(now);
                               })
        .def(
            "begin",
            [](engine & e, std::vector<token_id> prompt, int32_t n_predict, const sampling_params & sampling,
               const plan_params & plan, std::vector<std::string> stop, int32_t n_logprobs, const py::object & hook,
               std::vector<std::shared_ptr<token_hook>> hooks, const std::optional<sampling_params> & chosen_from,
               int32_t place, bool use_cache, int32_t n_mark, bool shift, int32_t n_keep, int32_t n_discard,
               bool filtered_logprobs, const seen_prompt * pictures, lora_scales scales) {
                auto                         own_hook = joined_hooks(hook, std::move(hooks));
                const py::gil_scoped_release released;

                auto r               = std::make_unique<request>();
                r->prompt            = std::move(prompt);
                r->n_predict         = n_predict;
                r->n_logprobs        = n_logprobs;
                r->filtered_logprobs = filtered_logprobs;
                r->stop              = std::move(stop);
                r->sampling          = sampling;
                r->filtered          = chosen_from;
                r->plan              = plan;
                r->hook              = std::move(own_hook);
                r->wanted            = place;
                r->use_cache         = use_cache;
                r->n_mark            = n_mark;
                r->shift             = {.on = shift, .n_keep = n_keep, .n_discard = n_discard};
                r->pictures          = pictures == nullptr ? picture_spans() : pictures->pictures;
                r->scales            = std::move(scales);
                return text_handle(e, e.begin(std::move(r)));
            },
            py::kw_only(), "prompt"_a, "n_predict"_a, "sampling"_a, "plan"_a, "stop"_a, "n_logprobs"_a,
            "hook"_a = py::none(), "hooks"_a = std::vector<std::shared_ptr<token_hook>>(),
            "chosen_from"_a = std::nullopt, "place"_a = -1, "use_cache"_a = true, "n_mark"_a = 0,
            "context_shift"_a = false, "n_keep"_a = 0, "n_discard"_a = 0, "filtered_logprobs"_a = false,
            "pictures"_a = py::none(), "lora_scales"_a = lora_scales())
        .def(
            "begin_errand",
            [](engine & e, std::shared_ptr<errand> job, std::vector<token_id> prompt, int32_t place,
               lora_scales scales) {
                return text_handle(e, e.begin(std::move(job), std::move(prompt), place, std::move(scales)));
            },
            "errand"_a, "prompt"_a = std::vector<token_id>(), "place"_a = -1, "lora_scales"_a = lora_scales(),
            py::call_guard<py::gil_scoped_release>())
        .def(
            "next",
            [](engine & e, text_handle & text, int64_t timeout_us) -> std::optional<c> {
                c chunk;
                return e.next(text.get(), chunk, timeout_us) ? std::optional<c>(std::move(chunk)) : std::nullopt;
            },
            "text"_a, "timeout_us"_a, py::call_guard<py::gil_scoped_release>())
        .def("wait_news", &engine::wait_news, "seen"_a, "timeout_us"_a, py::call_guard<py::gil_scoped_release>())
        .def(
            "cancel", [](engine & e, text_handle & text) { e.cancel(text.get()); }, "text"_a,
            py::call_guard<py::gil_scoped_release>())
        .def("cancel_all", &engine::cancel_all, py::call_guard<py::gil_scoped_release>())
        .def("close", &engine::close, py::call_guard<py::gil_scoped_release>())
        .def("save_lookup", &engine::save_lookup, "path"_a, py::call_guard<py::gil_scoped_release>())
        // Between two texts: the measurements of the pair, to a file and back.
        .def(
            "profile", [](const engine & e) { return of_plans(e, [](planner & p) { return p.saved(); }); }, released)
        .def(
            "restore_profile",
            [](const engine & e, const std::vector<double> & x) { e.with_plans([&x](planner & p) { p.restore(x); }); },
            "x"_a, released)
        .def(
            "forget_profile", [](const engine & e) { e.with_plans([](planner & p) { p.forget(); }); }, released)
        .def_property_readonly("n_measured",
                               py::cpp_function(
                                   [](const engine & e) {
                                       return of_plans(e, [](planner & p) { return p.profile().passes().n_passes(); });
                                   },
                                   released))
        .def("take_trace", [](engine & e) {
            std::vector<trace_event> target;
            std::vector<trace_event> draft;
            {
                const py::gil_scoped_release waiting;
                e.take_trace(target, draft);
            }
            py::list all;
            for (const auto & x : target) {
                all.append(event_tuple("target", x));
            }
            for (const auto & x : draft) {
                all.append(event_tuple("draft", x));
            }
            return all;
        });
}

} // namespace duo
