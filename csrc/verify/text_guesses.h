// What may follow one text: the tree that its draft has made, what the draft drew, and n-grams of this text and of
// earlier ones.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "model/proposals.h"
#include "plan/guess_record.h"
#include "plan/pass_tree.h"
#include "text/request.h"
#include "tree/lookup_cache.h"
#include "tree/mirror_tree.h"
#include "tree/ngram_index.h"
#include "tree/ngram_pool.h"
#include "tree/tree_shape.h"

namespace duo {

constexpr size_t n_ngram_paths = 4; // continuations from the text itself

// What is known of other texts. It must outlive the text; null: there is none.
struct other_texts {
    const ngram_pool *   pool   = nullptr; // of earlier ones; for ngram-mod alone
    const lookup_cache * lookup = nullptr;
};

// Belongs to the verify worker's thread. `text`: the committed tokens, the last of which is the root.
class text_guesses {
  public:
    using tokens = std::span<const token_id>;

    void begin(const request & req, tokens text, const other_texts & others);
    // The draft begins anew below the root, under the id of another request.
    void restart(node_id id, tokens text) { mirror_.begin(id, text); }

    // ---- the draft's messages

    // What the node was to the tree is returned.
    mirror_tree::news on_node(const node_msg & msg, tokens text, guess_record & record);
    void              on_share(const node_msg & msg);
    void              on_pause(node_id root) { mirror_.pause(root); }
    // The draft has said that it makes no more nodes below this root.
    [[nodiscard]] bool paused() const { return mirror_.paused(); }

    // ---- a pass

    // What n-grams of the text propose after it: the chances that the first tokens are right, up to each one. Valid
    // until the next call.
    [[nodiscard]] std::span<const double> repeats(const guess_record & record);

    // Fills tree() with what the next pass may verify. n_room: rows for it. Nodes whose chance is below `least` are
    // left out.
    void                             grow(tokens text, const guess_record & record, double least, int32_t n_room);
    [[nodiscard]] const tree_shape & shape() const { return shape_; } // empty: the text has no fixed tree
    [[nodiscard]] pass_tree &        tree() { return tree_; }
    [[nodiscard]] const pass_tree &  tree() const { return tree_; }
    // A row's node_msg::age; no_age: it comes from an n-gram.
    [[nodiscard]] int32_t age_of(int32_t i_row) const;

    // ---- the walk after it

    void begin_walk() { ngram_right_ = true; }
    // From which the rule of acceptance chooses below a row (-1: the root): what the draft drew there, or else the
    // rows. Valid until the next message or call.
    [[nodiscard]] guesses_below below(int32_t i_row, const sampling_params & sampling);
    // The target chooses `chosen` to follow row i_row, `level` levels below the root: all guesses there were right or
    // wrong, verified or not.
    void learn(int32_t i_row, int32_t level, token_id chosen, const sampling_params & sampling, guess_record & record);
    // The text has grown by these accepted rows and one token more. Appends the verdicts to `out`, one for each token
    // that the draft has to be told, without a slot.
    void commit(std::span<const int32_t> accepted, const std::vector<token_id> & text, std::vector<verdict_msg> & out);
    // The last committed token was already a node of the drafted tree.
    [[nodiscard]] bool was_hit() const { return was_hit_; }
    // The last verdict made all useless that the draft evaluates.
    [[nodiscard]] bool was_lost() const { return was_lost_; }

  private:
    void find_repeats(tokens text);
    bool propose_below(tokens text, int32_t n_most);
    bool propose_from_others(tokens text, tokens tail, int32_t n_most, const ngram_proposal * own);
    bool propose_from_pool(tokens text, tokens tail, int32_t n_most, const ngram_proposal * own);
    bool propose_from_lookup(tokens text, tokens tail, int32_t n_most, const ngram_proposal * own);
    void add_ngrams(tokens text, const guess_record & record, double least, int32_t n_most);

    mirror_tree mirror_;
    proposals   proposals_;
    ngram_index ngrams_;
    other_texts others_; // those that the text's options want
    tree_shape  shape_;
    pass_tree   tree_;

    std::array<ngram_proposal, n_ngram_paths> repeats_; // of the text's own end, best first
    size_t                                    n_repeats_   = 0;
    bool                                      repeats_on_  = false; // the text's options want them
    bool                                      ngram_right_ = true;  // the best one, as far as the walk has come
    bool                                      was_hit_     = false;
    bool                                      was_lost_    = false;

    std::vector<token_id> below_;          // scratch of below()
    std::vector<float>    said_;           // scratch of learn()
    std::vector<double>   chances_;        // scratch of repeats()
    ngram_proposal        proposal_below_; // scratch of grow()
    ngram_proposal        from_others_;    // scratch
    ngram_proposal        from_lookup_;    // scratch
    std::vector<int32_t>  places_;         // scratch of grow()
    std::vector<token_id> tail_;           // scratch of grow()
};

} // namespace duo
