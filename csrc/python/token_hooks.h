// The hooks of a text, as Python chooses them.
#pragma once

#include <memory>
#include <vector>

#include <pybind11/pybind11.h>

#include "text/token_hook.h"

namespace duo {

// One hook for all of them; null: there is none. ask: a Python function that comes first (python_hook.h), or None.
std::shared_ptr<token_hook> joined_hooks(const pybind11::object & ask, std::vector<std::shared_ptr<token_hook>> hooks);

// TokenHook, and what makes them.
void register_token_hooks(pybind11::module_ & m);

} // namespace duo
