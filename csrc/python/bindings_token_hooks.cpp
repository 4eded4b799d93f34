// What changes the rows of a text before the target chooses from them.
#include <pybind11/stl.h>

#include <limits>

#include "base/error.h"
#include "engine.h"
#include "llama/ordered_samplers.h"
#include "python_hook.h"
#include "text/adaptive_p.h"
#include "text/hook_chain.h"
#include "text/mirostat.h"
#include "text/thought_limit.h"
#include "token_hooks.h"

namespace py = pybind11;
using namespace pybind11::literals;

namespace duo {

namespace {

using hook_ptr = std::shared_ptr<token_hook>;

// Throws duo::error: the target is elsewhere, or has been closed.
std::shared_ptr<const llama_token_model> target_of(const engine & e) {
    auto target = e.target();
    if (!target) {
        throw error(error_kind::bad_value, "the target is not in this process");
    }
    return target;
}

hook_ptr limited(const engine & e, std::vector<thought_marks> marks, int32_t n_most) {
    const std::weak_ptr<const llama_token_model> target = target_of(e);
    const auto                                   spell  = [target](token_id token) {
        const auto model = target.lock();
        return model ? model->vocabulary.piece(token, true) : std::string();
    };
    return std::make_shared<thought_limit>(std::move(marks), n_most, spell);
}

} // namespace

std::shared_ptr<token_hook> joined_hooks(const py::object & ask, std::vector<hook_ptr> hooks) {
    if (!ask.is_none()) {
        hooks.insert(hooks.begin(), std::make_shared<python_hook>(ask));
    }
    return hooks.empty() ? nullptr : hooks.size() == 1 ? hooks.front() : std::make_shared<hook_chain>(std::move(hooks));
}

void register_token_hooks(py::module_ & m) {
    py::class_<token_hook, hook_ptr>(m, "TokenHook");
    py::class_<thought_marks>(m, "ThoughtMarks")
        .def(py::init([](std::string begin, std::string end, std::vector<token_id> forced) {
                 return thought_marks{std::move(begin), std::move(end), std::move(forced)};
             }),
             "begin"_a, "end"_a, "forced"_a);
    m.def("thought_limit", &limited, "engine"_a, "marks"_a, "n_most"_a);
    m.def(
        "mirostat",
        [](const engine & e, int32_t version, float tau, float eta, const sampling_params & s) -> hook_ptr {
            const auto      target = target_of(e);
            mirostat_params params{
                .version = version, .tau = tau, .eta = eta, .temp = s.temp, .logit_bias = s.logit_bias};
            for (token_id t = 0; s.ignore_eos && t < target->facts().n_vocab; ++t) {
                if (target->is_end(t)) {
                    params.logit_bias.emplace_back(t, -std::numeric_limits<float>::infinity());
                }
            }
            return std::make_shared<mirostat>(std::move(params));
        },
        "engine"_a, "version"_a, "tau"_a, "eta"_a, "sampling"_a);
    m.def(
        "adaptive_p", [](float target, float decay) -> hook_ptr { return std::make_shared<adaptive_p>(target, decay); },
        "target"_a, "decay"_a);
    m.def(
        "ordered_samplers",
        [](const engine & e, const std::vector<std::string> & names, const sampling_params & s) -> hook_ptr {
            return std::make_shared<ordered_samplers>(target_of(e)->weights(), names, s);
        },
        "engine"_a, "names"_a, "sampling"_a, py::call_guard<py::gil_scoped_release>());
    m.def("chosen_from", &chosen_from, "sampling"_a);
}

} // namespace duo
