// Limits of thoughts, whose characters the target's vocabulary knows.
#pragma once

#include <memory>
#include <vector>

#include <pybind11/pybind11.h>

#include "llama/model.h"
#include "text/thought_limit.h"

namespace duo {

// A text's hook that ends thoughts of more than n_most tokens. ask: called first; null: nobody is.
std::shared_ptr<token_hook> limited(const std::weak_ptr<const llama_token_model> & target,
                                    std::vector<thought_marks> marks, int32_t n_most, std::shared_ptr<token_hook> ask);

void register_thoughts(pybind11::module_ & m);

} // namespace duo
