// The marks of thoughts, and the limits that are made of them.
#include <pybind11/stl.h>

#include "thoughts.h"

namespace py = pybind11;
using namespace pybind11::literals;

namespace duo {

std::shared_ptr<token_hook> limited(const std::weak_ptr<const llama_token_model> & target,
                                    std::vector<thought_marks> marks, int32_t n_most, std::shared_ptr<token_hook> ask) {
    const auto spell = [target](token_id token) {
        const auto model = target.lock();
        return model ? model->vocabulary().piece(token, true) : std::string();
    };
    return std::make_shared<thought_limit>(std::move(marks), n_most, spell, std::move(ask));
}

void register_thoughts(py::module_ & m) {
    py::class_<thought_marks>(m, "ThoughtMarks")
        .def(py::init([](std::string begin, std::string end, std::vector<token_id> forced) {
                 return thought_marks{std::move(begin), std::move(end), std::move(forced)};
             }),
             "begin"_a, "end"_a, "forced"_a);
}

} // namespace duo
