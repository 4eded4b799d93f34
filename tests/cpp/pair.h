// Two scripted models in a real pipeline, and what the target alone would have written.
#pragma once

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>

#include "base/utf8.h"
#include "engine/pipeline.h"
#include "model/errand.h"
#include "scripted_model.h"

namespace duo_test {

using namespace duo;

// A request before it is one: can be copied and asked again.
struct ask {
    std::vector<token_id>    prompt{3, 1, 2};
    int32_t                  n_predict  = 50;
    int32_t                  n_logprobs = -1;
    std::vector<std::string> stop{};
    sampling_params          sampling{.temp = 0.0f};
    plan_params              plan{};
    context_shift            shift{};
    picture_spans            pictures{}; // in the prompt
    bool                     draft_sees = false;
    duo::lora_scales         scales{};

    std::unique_ptr<request> make() const;

    ask as(run_mode mode, int32_t n_max = n_draft_auto) const;
};

struct answer {
    std::vector<token_id>               tokens;
    std::string                         text;
    finish_reason                       finish = finish_reason::none;
    std::vector<bool>                   from_draft;
    std::vector<float>                  logps;
    std::vector<std::vector<candidate>> tops;
    verify_stats                        stats;
    failure                             error;
    std::string                         warning;
};

// Of a text that was cancelled.
bool is_beginning(const std::vector<token_id> & part, const std::vector<token_id> & whole);

// Far beyond any test, so that a hang is reported where it is. Waits of a second each: a process that is stopped for a
// while does not fail when it goes on.
constexpr int64_t patience_us = 60000000;
constexpr int64_t wait_us     = 1000000;

bool next_chunk(pipeline & p, open_text & text, text_chunk & out);

// Reads up to n tokens; false: the text ended.
bool read_some(pipeline & p, open_text & text, answer & a, size_t n);

// Of the text that was begun last.
bool read_some(pipeline & p, answer & a, size_t n);

answer read_all(pipeline & p);

// The caller keeps the errand. place: in the target's cache; -1: the worker's choice.
answer run_errand(pipeline & p, errand & job, std::vector<token_id> prompt = {}, int32_t place = -1);

// What was saved, as the errand that brings it back.
errand given(const errand & saved);

// By brute force: token after token, the whole text searched for stop strings each time.
answer reference(const language & lang, int32_t n_ctx, const ask & q);

// What holds of every request that was read, however it ended.
void check_stats(const answer & a, const ask & q, const std::string & note);

void check_same(const answer & got, const answer & want, const std::string & note);

// Two models and the pipeline between them, torn down in the right order.
struct pair {
    explicit pair(const behaviour & t, const std::optional<behaviour> & d = {}, bool tracing = false,
                  const pair_prior & prior = {});
    ~pair();

    // Asks, reads all, and compares with the reference.
    answer run(const ask & q, const std::string & note = {});

    // Both models hang at some call: the target is held until the draft is there, or it might be done before.
    void begin_with_hanging_draft(const ask & q);

    language       lang;
    int32_t        n_ctx;
    scripted_model target;
    scripted_model draft;
    pipeline       line;
};

} // namespace duo_test
