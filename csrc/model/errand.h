// A job for the models between two texts: save, restore or erase their caches, or find the log-probabilities of a given
// text. Each worker does its part in its own thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/messages.h"
#include "token_model.h"

namespace duo {

// What a model's cache holds: the leading tokens of a text.
struct cache_image {
    std::vector<token_id> tokens{};
    std::string           saved{};  // save: as token_model::save() gives it; empty: nothing is cached
    std::span<const char> given{};  // restore: the same; empty: the cache stays as it is
    std::vector<int32_t>  held{};   // look: positions that the model holds of each branch, by its own account
    lora_scales           scales{}; // of a target's adapters, with which it was computed
    // Of a draft: tokens of the text that it has left out (draft_window.h). Then `tokens` are those that it has read.
    // It is not saved then, because there is little to read again.
    int32_t n_left_out = 0;
};

// Positions that the model holds of each of its branches.
inline std::vector<int32_t> all_held(const token_model & model) {
    std::vector<int32_t> all;
    for (int32_t b = 0; b < model.facts().n_branch; ++b) {
        all.push_back(model.n_held(b));
    }
    return all;
}

// Until the end message the verify worker owns all but `draft`, which belongs to the draft worker until it sets the
// request's draft_done.
struct errand {
    enum class kind : uint8_t {
        look,    // tells what both caches hold
        save,    // tells them, and saves both caches
        restore, // replaces what the caches hold with these images
        erase,   // empties the caches, and tells what they held
        score,   // evaluates the request's prompt
    };

    kind        what = kind::look;
    cache_image target{};
    cache_image draft{};     // its tokens are filled in by every errand; empty: the draft is elsewhere or absent
    int32_t     n_keep = -1; // save: the caches forget what comes after so many tokens; -1: nothing

    int32_t                n_top = 0; // score: alternatives wanted for each token
    std::vector<float>     logp{};    // score: of each token of the prompt but the first; nats
    std::vector<candidate> top{};     // score: n_top for each of these, most probable first
};

} // namespace duo
