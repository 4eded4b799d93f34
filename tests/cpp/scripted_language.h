// A made-up language in which the next token is a function of the text so far, and states that say which text they are
// of.
#pragma once

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "check.h"
#include "model/token_model.h"
#include "random.h"

namespace duo_test {

using duo::candidate;
using duo::sampling_params;
using duo::token_id;

// The language. Equal seeds speak the same; token 0 ends a text.
struct language {
    uint64_t seed     = 1;
    int32_t  n_vocab  = 40;
    double   p_end    = 0.0;
    bool     periodic = false; // what follows depends on the last token alone, so that texts repeat themselves

    static constexpr int32_t n_choices = 5;

    // What may follow, most probable first.
    std::vector<candidate> after(std::span<const token_id> text, double agree = 1.0, uint64_t accent = 0,
                                 double second = 0.0, int32_t n_left_out = 0) const;

    // Filter, penalties, noise: all that depends on the text and its length, so that a wrong one shows.
    static void choose(std::vector<candidate> & all, const sampling_params & s, std::span<const token_id> text);

    // Letters for stop strings, and bytes that are not whole characters.
    static std::string piece(token_id token);
};

// A state that says which text it comes from: its length and its hash, in parts that a float holds exactly.
constexpr int32_t n_text_state = 5;

uint64_t hash_after(uint64_t before, token_id token);

void write_state(std::span<float> out, size_t n_text, uint64_t hash);

uint64_t hash_in(const float * state);

uint64_t hash_of(std::span<const token_id> text);

} // namespace duo_test
