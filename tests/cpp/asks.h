// Random requests.
#pragma once

#include "pair.h"

namespace duo_test {

std::vector<std::vector<int32_t>> random_shape(dice & d);

ask random_ask(dice & d, const language & lang, int32_t n_ctx);

} // namespace duo_test
