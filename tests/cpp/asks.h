// Random requests.
#pragma once

#include "pair.h"

namespace duo_test {

std::vector<std::vector<int32_t>> random_shape(dice & d);

// Puts pictures somewhere in the prompt; some of them begin alike.
void put_pictures(ask & q, dice & d);
// The first n tokens of the prompt, without a part of a picture at their end.
void cut_prompt(ask & q, size_t n);

ask random_ask(dice & d, const language & lang, int32_t n_ctx);

} // namespace duo_test
