// The tokens for which a draft computes logits. A vocabulary of 150,000 makes the output matrix a third of a small
// model, and a text uses few of them (FR-Spec, arXiv 2502.14856). Other tokens get -inf. The target may write them at
// any time: then a guess was missing, and nothing else happens.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include <llama.h>

#include "base/messages.h"
#include "cpu/ggml_compute.h"

namespace duo {

// Ids of a BPE vocabulary are in the order in which pairs were merged, so the first ones are the frequent ones. Beside
// these the list has what is no ordinary text (control tokens, ends, bytes), and the tokens that a text brought. The
// unit is the 16 rows that kernels compute together.
class shortlist {
  public:
    // weight: name of the output matrix, [n_vocab][...]. n_first: ids below it are in the list.
    shortlist(const llama_vocab * vocab, int32_t n_first, const std::string & weight);

    // A token of the prompt, of the text, or of a guess.
    void read(token_id token);

    // What to compute; nullptr: all rows. If a text goes on with other tokens again and again, the list is left out
    // until that ends.
    [[nodiscard]] const cpu::row_choice * rows() const { return resting_ ? nullptr : &rows_; }

    // Number of tokens in the list as it is now.
    [[nodiscard]] int32_t n_tokens() const;

  private:
    void find_runs();

    std::vector<uint8_t> has_; // by unit: 0: no, 1: yes, 2: since a text brought it
    std::deque<int32_t>  brought_;
    size_t               n_brought_most_ = 0;
    float                n_outside_      = 0.0f; // share of the last rows
    bool                 resting_        = false;
    cpu::row_choice      rows_;
};

} // namespace duo
