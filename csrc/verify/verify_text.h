// One text as the target sees it: its tokens, the drafted tree below them, n-grams, stop strings and figures.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/proposals.h"
#include "model/token_model.h"
#include "plan/guess_record.h"
#include "plan/pass_tree.h"
#include "text/request.h"
#include "text/stop_matcher.h"
#include "tree/mirror_tree.h"
#include "tree/ngram_index.h"
#include "tree/tree_shape.h"

namespace duo {

constexpr size_t n_ngram_paths = 4; // continuations from the text itself

// Belongs to the verify worker's thread. It knows the model's vocabulary but evaluates nothing.
class verify_text {
  public:
    // The model must outlive it.
    explicit verify_text(const token_model & model) : model_(model) {}

    // ---- its life

    void               begin(request & req);
    void               end();
    [[nodiscard]] bool active() const { return req_ != nullptr; }

    // While active().
    [[nodiscard]] request &            req() { return *req_; }
    [[nodiscard]] const request &      req() const { return *req_; }
    [[nodiscard]] verify_stats &       stats() { return req_->stats; }
    [[nodiscard]] const verify_stats & stats() const { return req_->stats; }
    [[nodiscard]] bool                 cancelled() const { return req_->cancelled.load(std::memory_order_relaxed); }

    [[nodiscard]] const std::vector<token_id> & tokens() const { return tokens_; } // committed; back() is the root
    [[nodiscard]] int32_t                       n_tokens() const { return int32_t(tokens_.size()); }
    // Rows for drafted tokens that context, batch and n_predict leave beside the root. n_cached: tokens in the model's
    // cache.
    [[nodiscard]] int32_t n_room(size_t n_cached) const;

    [[nodiscard]] finish_reason finish() const { return finish_; } // none: it goes on
    void                        finish(finish_reason why) { finish_ = why; }
    // Bytes at the end of the text that belong to the stop string.
    [[nodiscard]] int32_t n_drop() const { return n_drop_; }

    // ---- its draft

    // The draft begins anew below the last token, under the id of another request.
    void restart_tree(node_id id) { mirror_.begin(id, tokens_); }

    // The messages of its draft. What the node was to the tree is returned.
    mirror_tree::news on_node(const node_msg & msg, guess_record & guesses);
    void              on_share(const node_msg & msg);
    void              on_pause(node_id root) { mirror_.pause(root); }
    // The draft has said that it makes no more nodes below this root.
    [[nodiscard]] bool draft_paused() const { return mirror_.paused(); }

    // ---- a pass

    // Fills tree() with what the next pass may verify. n_room: rows for it.
    // Nodes whose chance is below `least` are left out.
    void                             grow_tree(const guess_record & guesses, double least, int32_t n_room);
    [[nodiscard]] const tree_shape & shape() const { return shape_; } // empty: the text has no fixed tree
    [[nodiscard]] pass_tree &        tree() { return tree_; }
    [[nodiscard]] const pass_tree &  tree() const { return tree_; }

    // After the pass: the walk from the root down the rows of tree(), as far as the target agrees.
    void begin_walk(stance now);
    // Deepest accepted row; -1: the root.
    [[nodiscard]] int32_t row() const { return accepted_.empty() ? -1 : accepted_.back(); }
    // The guesses below row() from which the rule of acceptance chooses: what the draft drew there, or else the rows.
    // Valid until the next message or call.
    [[nodiscard]] guesses_below guesses() { return guesses_at(row()); }
    [[nodiscard]] guesses_below guesses_at(int32_t i_row); // -1: the root
    // The target chooses `token` to follow row(), and the text grows by it. True: the token was drafted, and row() is
    // its row now.
    bool step(token_id token, guess_record & guesses);
    // Ends the walk where it is: row() counts as the target's own choice. False: it has not begun.
    bool end_walk_at_row();
    // The last token as a message to the reader. finish() is set if it is the last one of the text.
    chunk_msg make_chunk(bool from_draft);

    // Tokens of the walk.
    [[nodiscard]] int32_t                      n_new() const { return int32_t(accepted_.size()) + 1; }
    [[nodiscard]] int32_t                      n_accepted() const { return int32_t(accepted_.size()); }
    [[nodiscard]] int32_t                      n_accepted_on_best_path() const;
    [[nodiscard]] const std::vector<int32_t> & accepted() const { return accepted_; } // rows of tree()
    // Time since the last verdict, in microseconds; nothing: this is the first one.
    [[nodiscard]] std::optional<int64_t> us_since_verdict(int64_t now) const;
    // Ends the walk: appends the verdicts to `out`, one for each token that the draft has to be told, without a slot.
    void commit(int64_t now, std::vector<verdict_msg> & out);
    // The last committed token was already a node of the drafted tree.
    [[nodiscard]] bool was_hit() const { return was_hit_; }
    // The last verdict made all useless that the draft evaluates.
    [[nodiscard]] bool was_lost() const { return was_lost_; }

    // Time in the model, and time that was waited for the draft.
    void count_busy(int64_t us);
    void count_wait(int64_t us);

  private:
    void resume();
    void add_ngrams(const guess_record & guesses, double least, int32_t n_most);
    void learn_from(int32_t i_node, int32_t level, token_id chosen, guess_record & guesses);
    void count_ages(int32_t i_row, int32_t next);

    const token_model & model_;

    request *             req_ = nullptr;
    std::vector<token_id> tokens_;
    mirror_tree           mirror_;
    proposals             proposals_;
    ngram_index           ngrams_;
    stop_matcher          stops_;
    finish_reason         finish_ = finish_reason::none;
    int32_t               n_drop_ = 0;

    tree_shape shape_;

    pass_tree                                 tree_;
    std::array<ngram_proposal, n_ngram_paths> repeats_; // of the text's own end, best first
    size_t                                    n_repeats_ = 0;
    std::vector<int32_t>                      accepted_;            // rows of tree_ on the accepted path
    bool                                      ngram_right_  = true; // the best proposal, as far as the walk has come
    bool                                      was_hit_      = false;
    bool                                      was_lost_     = false;
    int64_t                                   t_verdict_    = 0; // when the last one was given; 0: none yet
    int64_t                                   elsewhere_us_ = 0; // since then in the model, and waiting

    std::vector<token_id> below_;          // scratch of guesses()
    ngram_proposal        proposal_below_; // scratch
    std::vector<int32_t>  places_;         // scratch
    std::vector<token_id> tail_;           // scratch
    std::vector<float>    said_;           // scratch of learn_from()
};

} // namespace duo
