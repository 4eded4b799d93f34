// Whether experts are foreseen, and what stays in memory beside them, for tests and benchmarks.
#include <map>
#include <string>

#include "base/error.h"
#include "bindings.h"
#include "cpu/experts_ahead.h"
#include "cpu/kept_weights.h"

namespace py = pybind11;
using namespace pybind11::literals;

namespace duo {

namespace {

// what: for the message.
template <class T> T named(const std::string & how, const std::string & what) {
    const std::map<std::string, T> known{{"off", T::off}, {"needed", T::needed}, {"always", T::always}};
    const auto                     at = known.find(how);
    if (at == known.end()) {
        throw error(error_kind::bad_value, what + " off, needed or always, not " + how);
    }
    return at->second;
}

} // namespace

void register_experts(py::module_ & m) {
    m.def(
        "foresee_experts",
        [](const std::string & how) { cpu::set_foresight(named<cpu::foresight>(how, "experts are foreseen")); },
        "how"_a);
    m.def(
        "keep_common_weights",
        [](const std::string & how) { cpu::set_keeping(named<cpu::keeping>(how, "common weights are kept")); },
        "how"_a);
}

} // namespace duo
