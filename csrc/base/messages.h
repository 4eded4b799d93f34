// Everything that crosses a thread: plain structs of fixed size, copied through the rings.
//
//   draft worker  -- node_msg -->     verify worker  -- chunk_msg -->  text stream
//   draft worker  <-- verdict_msg --  verify worker  <-- request * --  engine
//
// A token's position is its index in prompt + generated text, from 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace duo {

using token_id = int32_t;
using node_id  = uint64_t; // the draft counts them up, so an old id never means a new node

constexpr node_id  no_node  = 0;
constexpr token_id no_token = -1;
constexpr int16_t  no_age   = -1; // of a node that no draft head has guessed

// Rows of a picture have such ids (text/pictures.h): larger than any token's.
constexpr token_id first_picture_id = 1 << 30;

constexpr bool is_picture(token_id id) {
    return id >= first_picture_id;
}

// A request is the parent of its own root. Request ids have the highest bit set, so they never equal a node's.
constexpr node_id request_node(uint64_t n_request) {
    return (node_id(1) << 63) | n_request;
}

struct request;

// draft -> target
struct node_msg {
    enum class kind : uint8_t {
        node,   // `token` may follow `parent`; with the id of an earlier node: a better estimate of its chance
        pause,  // nothing will grow below root `parent` until the next verdict
        failed, // the draft is gone for this request (`id` = request); the text goes on without it
        share,  // `parent`'s children are draws, of `token` with probability exp(logp). A parent's shares sum to 1 and
                // come before its children
        ready,  // a draft in another process can be reached and may be told to begin
        lost,   // that draft cannot be reached any more
        done,   // the draft has done its part of an errand
    };

    kind     what    = kind::node;
    bool     guess   = true; // false: made because a verdict named the token, or an estimate of an earlier guess
    int32_t  slot    = 0;
    node_id  id      = no_node;
    node_id  parent  = no_node;
    token_id token   = no_token;
    float    logp    = 0.0f;   // log of its chance by the draft, if its parent is right; nats
    int16_t  rank    = 0;      // among its siblings, best first
    int16_t  n_rows  = 0;      // nodes expanded in the draft step that made it
    int16_t  age     = no_age; // a draft head's: its own steps between the target's newest state and this guess
    float    step_us = 0.0f;   // duration of that step; 0: not typical (prompt, catch-up) or already sent
    float    beside  = 0.0f;   // part of it in which the target worked too, 0..1; unknown to a remote draft
};

// target -> draft
struct verdict_msg {
    enum class kind : uint8_t {
        begin,    // evaluate `req`'s prompt; its last token is the root
        orders,   // only the fields from `n_ahead` on count
        verdict,  // re-root: first at `accepted`, then at its child `token`
        end,      // forget the slot
        errand,   // no text is running: do the draft's part of `req`'s errand
        features, // for a draft head: hidden states of `n_rows` tokens from position `pos` on are in the feature_ring
    };

    kind            what         = kind::verdict;
    int32_t         slot         = 0;
    node_id         accepted     = no_node;  // deepest accepted node; no_node: the draft knows none below the root
    token_id        token        = no_token; // the further token that the target chose
    int16_t         n_ahead      = 0;        // deepest level below the root that is of use
    int16_t         n_branch     = 1;        // frontier nodes to expand in a step at most (B)
    int16_t         n_threads    = 0;        // for the draft's steps; 0: all its threads
    int16_t         n_want       = 0;        // pause when the best n_want nodes are known; 0: run ahead
    int16_t         branch_price = 1000;     // cost of one more node in a step, in 1/1000 of a step over one
    int16_t         least_path   = 0;        // by turns: nodes with less chance, in 1/1000, are not expanded
    int16_t         sharpness    = 0;        // log of the power that its own estimates need (sharpness.h), in 1/1000
    int32_t         pos          = 0;        // features
    int32_t         n_rows       = 0;        // features
    const request * req          = nullptr;  // begin: immutable, and alive until the draft sets draft_done
};

enum class finish_reason : uint8_t {
    none,
    stop,      // end-of-generation token or stop string
    length,    // n_predict reached or context full
    cancelled, // by the caller
    error,     // the target failed; request::error says why
};

// target -> text
struct chunk_msg {
    enum class kind : uint8_t {
        token,   // one committed token
        logprob, // one of the target's best alternatives for the token message before it
        end,     // nothing follows; statistics in the request are complete
    };

    kind          what       = kind::token;
    bool          from_draft = false; // the draft had guessed it and the target agreed
    bool          hidden     = false; // no text of its own: an end-of-generation token
    finish_reason finish     = finish_reason::none;
    int32_t       slot       = 0;
    token_id      token      = no_token;
    float         logp       = 0.0f; // target's log-probability, nats; only when log-probabilities were asked for
    int32_t       n_hold     = 0;    // bytes at the end that may become a stop string: do not show them yet
    int32_t       n_drop     = 0;    // end: last bytes of the text that belong to the stop string
    int64_t       t_us       = 0;    // when it was committed
};

// How draft and target work together, as the planner decides.
enum class stance : uint8_t {
    ahead,   // the draft works while the target does
    by_turn, // the draft waits for the verdict: both at once would slow each other down
    rest,    // speculation does not pay; tried again later
};
constexpr std::size_t n_stances = 3;

// One bar in the trace; times from now_us().
struct trace_event {
    enum class kind : uint8_t { prompt, verify, draft, wait };

    kind    what       = kind::verify;
    bool    hit        = false; // verify: the last committed token was already a node of the tree
    int32_t slot       = 0;
    int32_t n_rows     = 0; // rows in the pass
    int32_t n_drafted  = 0; // verify: drafted tokens in the pass; draft: nodes made
    int32_t n_accepted = 0; // verify
    int32_t depth      = 0; // draft: level below the root of the nodes made; verify: longest drafted path
    int32_t n_branch   = 0; // verify: B that the draft was told
    float   expected   = 0; // verify: tokens that the planner expected of the pass
    stance  stance_now = stance::ahead;
    int64_t t0_us      = 0;
    int64_t t1_us      = 0;
};

static_assert(std::is_trivially_copyable_v<node_msg> && std::is_trivially_copyable_v<verdict_msg> &&
              std::is_trivially_copyable_v<chunk_msg> && std::is_trivially_copyable_v<trace_event>);

} // namespace duo
