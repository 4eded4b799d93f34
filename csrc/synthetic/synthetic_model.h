// Models without weights. The text is a hash, a pass takes a given time, and the draft is right at a given rate. `duo
// bench --synthetic` runs the real engine on a pair of them, which measures the scheduling, on any machine. Each call
// is checked against the contract of token_model.h, so wrong positions show at once.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model/token_model.h"
#include "synthetic_options.h"

namespace duo {

// Target or draft of a pair. Both must have the same options. Sampling options are ignored: the text is a function of
// the prompt and the seed.
class synthetic_model : public token_model {
  public:
    // Throws duo::error if the options make no sense.
    synthetic_model(const synthetic_options & opt, bool is_draft);

    const model_facts & facts() const override { return facts_; }

    // Returns when the time of the pass is over; if stopped, within 2 ms. More than 64 rows, not all of them with
    // output, count as a prompt, which takes as long as one row. After an exception nothing of the batch is cached.
    decode_status decode(std::span<const row> rows, const std::atomic<bool> & stop) override;

    int32_t candidates(int32_t i_row, const sampling_params & sampling, std::span<const token_id> text,
                       std::span<candidate> out) override;
    float   logprobs(int32_t i_row, token_id token, std::span<candidate> out) override;
    bool    rollback(int32_t branch, int32_t pos) override;
    bool    shift(int32_t branch, int32_t pos, int32_t n) override;
    void    fork(int32_t from, int32_t to, int32_t pos) override;
    int32_t n_held(int32_t branch) const override { return length(branch); }

    bool        is_end(token_id /*token*/) const override { return false; }
    std::string piece(token_id token) const override;

    // For tests.
    [[nodiscard]] std::vector<token_id> cached(int32_t branch) const;
    [[nodiscard]] int32_t               n_cells_used() const { return n_used_; }

  private:
    // Texts are chains of cells that share their beginnings. A branch is the index of its last cell.
    struct cell {
        token_id token  = no_token;
        int32_t  parent = -1;
        int32_t  pos    = 0;
        int32_t  n_refs = 0; // cells and branches that continue or end here; 0: free
    };

    static constexpr size_t n_tail = 3; // tokens that the next one depends on

    // All that the next token depends on, copied at the time of the pass.
    struct row_end {
        int32_t                      pos    = 0;
        bool                         output = false;
        std::array<token_id, n_tail> tail{}; // oldest first
    };

    void                          append(const row & r);
    void                          cut(int32_t branch, int32_t pos);
    void                          undo();
    void                          let_go(int32_t i_cell);
    void                          check_branch(int32_t branch) const;
    [[nodiscard]] bool            same_text(int32_t i, int32_t j) const;
    [[nodiscard]] int32_t         length(int32_t branch) const;
    [[nodiscard]] const row_end & end_of(int32_t i_row) const;
    [[nodiscard]] uint64_t        key_of(const row_end & e) const;
    [[nodiscard]] token_id        token_of(uint64_t hash) const { return token_id(hash % uint64_t(facts_.n_vocab)); }

    const model_facts facts_;
    const uint64_t    seed_;
    const agreement   agree_;
    const pass_cost   cost_;
    const bool        is_draft_;

    std::vector<cell>    cells_;
    std::vector<int32_t> free_;       // cells that can be reused
    std::vector<int32_t> tips_;       // by branch; -1: empty
    std::vector<int32_t> before_;     // lengths of the branches before the decode() that is running
    std::vector<row_end> ends_;       // by row of the last decode()
    int32_t              n_used_ = 0; // cells in use
};

} // namespace duo
