// One text to be generated: what was asked for, and what is known about it while it runs and afterwards.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/messages.h"
#include "draft_window.h"
#include "lora_scales.h"
#include "pictures.h"
#include "sampling.h"
#include "token_hook.h"
#include "tree/ngram_index.h"

namespace duo {

struct errand;
class pair_profile;

enum class run_mode : uint8_t { plain, sync, async };

// What is verified of the tree.
enum class tree_use : uint8_t {
    automatic, // a chain, or a tree where that pays
    chain,     // only ever the best path
    dynamic,   // the n_max most probable nodes (EAGLE-2, arXiv 2406.16858)
};

constexpr int32_t n_draft_auto = -1; // the planner's choice
constexpr int32_t n_draft_cap  = 64; // drafted tokens in one verification at most
constexpr int32_t n_step_cap   = 16; // nodes that a draft expands in one step at most
constexpr int32_t n_ages       = 5;  // of a draft head's guesses that are counted separately: 0 to 3, 4 and more

struct plan_params {
    run_mode mode      = run_mode::async;
    int32_t  n_max     = n_draft_auto; // drafted tokens in a verification at most
    int32_t  n_min     = 0;            // fewer than this are not worth verifying
    float    p_min     = 0.0f;         // the draft stops below this probability
    int32_t  n_branch  = 0; // frontier nodes that the draft expands at once, at most; 0: the planner's choice
    int32_t  n_window  = n_window_auto; // last tokens of the prompt that the draft reads; see draft_window.h
    bool     has_model = true;          // the draft model takes part
    bool     always    = false;         // speculate whether it pays or not (for measurements)
    tree_use use       = tree_use::automatic;

    guess_kind kind = guess_kind::noise; // of the text

    std::vector<std::vector<int32_t>> tree{};  // a fixed tree as paths of ranks (tree_shape.h); empty: none
    ngram_params                      ngram{}; // drafts from the text itself (ngram_index.h)
};

// Written by the verify worker; the end message releases it to the reader of the chunk ring.
struct verify_stats {
    int32_t n_prompt            = 0; // tokens of the prompt
    int32_t n_prompt_cached     = 0; // of these, still in the KV cache from the call before
    int32_t n_prompt_returned   = 0; // of these, back from the texts that are kept in RAM
    int32_t n_predicted         = 0;
    int32_t n_passes            = 0; // target passes that chose tokens
    int32_t n_verifications     = 0; // of these, with drafted tokens
    int32_t n_drafted           = 0; // drafted tokens in them
    int32_t n_accepted          = 0;
    int32_t n_hits              = 0; // passes whose last token was already a node
    int32_t n_after_hit         = 0; // passes that came after such a one
    int32_t n_tokens_after_hit  = 0; // committed by them
    int32_t n_tokens_after_miss = 0; // committed by the others, except the first pass
    int32_t n_path              = 0; // drafted tokens on the best path of a pass: all of them, if no tree was verified
    int32_t n_path_accepted     = 0;
    int32_t n_shifts            = 0; // times that the context was full and was shifted
    int32_t n_side              = 0; // passes whose accepted nodes were not all on the best path
    int32_t n_ngram             = 0; // drafted tokens that came from n-grams alone
    int32_t n_ngram_accepted    = 0;
    int64_t t_begin_us          = 0;
    int64_t t_first_us          = 0; // first token committed
    int64_t t_end_us            = 0;
    int64_t prompt_us           = 0;
    int64_t busy_us             = 0;
    int64_t wait_us             = 0; // waited for the draft
    int64_t overhead_us         = 0; // time of all passes but the first, without model and waits

    std::array<int32_t, n_draft_cap> n_tested_at{}; // by level below the root, from 0: something was drafted there
    std::array<int32_t, n_draft_cap> n_accepted_at{};
    std::array<int32_t, n_ages>      n_tested_of_age{}; // a draft head's guesses below accepted ones, by node_msg::age
    std::array<int32_t, n_ages>      n_accepted_of_age{};
    std::array<int32_t, n_stances>   n_passes_in{}; // by stance
};

// The draft worker writes it after each step. If the draft is in another process, the reader of its nodes writes it.
// Any thread may read. Relaxed order is enough, as the counters guard no other data.
struct draft_stats {
    std::atomic<int64_t> n_steps{0};
    std::atomic<int64_t> n_nodes{0};
    std::atomic<int64_t> busy_us{0};
    std::atomic<int64_t> hidden_us{
        0}; // part of busy_us while the target was busy too; unknown if one of them is remote

    void count(int64_t steps, int64_t nodes, int64_t busy, int64_t hidden) {
        const auto more = [](std::atomic<int64_t> & x, int64_t d) {
            x.store(x.load(std::memory_order_relaxed) + d, std::memory_order_relaxed);
        };
        more(n_steps, steps);
        more(n_nodes, nodes);
        more(busy_us, busy);
        more(hidden_us, hidden);
    }
};

// What happens when the context is full: the text ends, or tokens in its middle are left out and it goes on. The
// option is llama.cpp's (--context-shift).
struct context_shift {
    bool    on        = false;
    int32_t n_keep    = 0; // first tokens that always stay
    int32_t n_discard = 0; // tokens behind them that go each time; 0: half
};

// What is asked for. Another process needs to know no more of a text.
struct text_params {
    node_id                  id     = no_node; // request_node(n): parent of the root
    uint64_t                 client = 0;       // on a host: who asks for the text
    std::vector<token_id>    prompt;
    int32_t                  n_generated = 0;  // so many of the last ones were generated, before a link was lost
    int32_t                  n_predict   = -1; // -1: until the model ends or the context is full
    int32_t                  n_logprobs  = -1; // alternatives wanted for each token; -1: no log-probabilities at all
    bool                     filtered_logprobs = false; // of what filters and grammar leave; without a hook only
    std::vector<std::string> stop;
    sampling_params          sampling;
    plan_params              plan;

    // Sets where the part of the text begins that the grammar applies to, unless it is set. A text that is resumed has
    // some of that part in its prompt.
    void set_grammar_start() {
        const auto n_all = int32_t(prompt.size());
        if (!sampling.grammar.empty()) { // without a grammar it stays unset, so that equal options compare equal
            sampling.n_prompt = sampling.n_prompt < 0 ? n_all - n_generated : std::min(sampling.n_prompt, n_all);
        }
    }
};

// The engine writes text_params and the slot before the request enters a ring. Nothing writes them afterwards.
struct request : text_params {
    int32_t       slot      = 0;
    int32_t       wanted    = -1;   // place in the target's cache, if it is free; -1: the one that fits best
    bool          use_cache = true; // false: the whole prompt is evaluated
    context_shift shift;
    picture_spans pictures; // in the prompt; only for a model in this process that sees
    lora_scales   scales;   // of the target's adapters; only for a target in this process
    // Later prompts will probably begin with so many tokens of this one, and then differ. 0: unknown.
    int32_t                     n_mark = 0;
    std::shared_ptr<token_hook> hook; // null: none. Only for a target in this process
    // How the target chooses from what the hook has left, if that is in place of `sampling`.
    std::optional<sampling_params> filtered;

    std::shared_ptr<errand> job; // not a text, but this (errand.h); null: a text

    // Caller -> both workers; of a draft's beginning in mid-text, the verify worker -> the draft. Relaxed: it only asks
    // them to stop soon.
    std::atomic<bool> cancelled{false};

    // Verify worker -> anybody: the place in its cache (-1: the text has not begun), and the tokens that it had there.
    std::atomic<int32_t> place{-1};
    std::atomic<int32_t> n_cached{0};

    // Verify worker; readable after the end message.
    verify_stats stats;
    failure      error;

    std::shared_ptr<const pair_profile> learned; // what was known of the pair at the end; null: the target is elsewhere

    // Draft worker. draft_error is written before the `failed` node, whose ring releases it to the verify worker.
    std::shared_ptr<draft_stats> draft = std::make_shared<draft_stats>(); // shared by all beginnings of the text
    mutable std::string          draft_error;
    mutable std::atomic<bool>    draft_done{true}; // release: the draft will not touch this request again

    // Verify worker's copy of draft_error, for the reader.
    std::string warning;
};

} // namespace duo
