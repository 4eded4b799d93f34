// Whether experts are foreseen, for tests and benchmarks.
#include <map>
#include <string>

#include "base/error.h"
#include "bindings.h"
#include "cpu/experts_ahead.h"

namespace py = pybind11;
using namespace pybind11::literals;

namespace duo {

namespace {

cpu::foresight named(const std::string & how) {
    static const std::map<std::string, cpu::foresight> known{
        {"off", cpu::foresight::off}, {"needed", cpu::foresight::needed}, {"always", cpu::foresight::always}};
    const auto at = known.find(how);
    if (at == known.end()) {
        throw error(error_kind::bad_value, "experts are foreseen off, needed or always, not " + how);
    }
    return at->second;
}

} // namespace

void register_experts(py::module_ & m) {
    m.def("foresee_experts", [](const std::string & how) { cpu::set_foresight(named(how)); }, "how"_a);
}

} // namespace duo
