// A token_model without a model: it speaks a scripted language.
//
// The text is read from the tokens that were really decoded into its cache, and every call is checked against the
// contract of token_model.h, so a worker that rolls back or counts positions wrongly is caught on the spot.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "base/error.h"
#include "check.h"
#include "scripted_base.h"
#include "text/draft_window.h"

namespace duo_test {

using duo::decode_status;
using duo::row;

class scripted_model : public scripted_base {
  public:
    explicit scripted_model(const behaviour & b);
    ~scripted_model() override;

    int32_t n_undo_together(int32_t n_texts) const override;

    bool expects() const override { return true; }
    void expect(std::span<const token_id> tokens) override {
        const one_at_a_time guard(*this);
        expected_.assign(tokens.begin(), tokens.end());
    }

    void use_threads(int32_t n) override;

    void use_scales(const duo::lora_scales & scales) override {
        const one_at_a_time guard(*this);
        scale_ = scales.empty() ? 0.0f : scales.front();
    }

    decode_status decode(std::span<const row> rows, const std::atomic<bool> & stop) override;

    int32_t candidates(int32_t i_row, const sampling_params & s, std::span<const token_id> text,
                       std::span<candidate> out) override;

    void features(int32_t i_row, std::span<float> out) const override;

    float logprobs(int32_t i_row, token_id token, std::span<candidate> out) override;

    bool rollback(int32_t branch, int32_t pos) override;

    bool shift(int32_t branch, int32_t pos, int32_t n) override;

    void mark(int32_t branch) override;

    int32_t take_back(int32_t branch, int32_t pos) override;

    void fork(int32_t from, int32_t to, int32_t pos) override;

    int32_t n_held(int32_t branch) const override { return int32_t(cache_[size_t(branch)].id.size()); }

    // The branch's tokens, behind their number.
    std::string save(int32_t branch) const override;
    int64_t     saved_bytes(int32_t branch) const override;

    void restore(int32_t branch, std::span<const char> saved) override;

    // For the test's own thread.
    void wait_until_hanging() { hanging_.wait(false); }
    void release() { released_.store(true); }
    bool hanging() const { return hanging_.load(); }
    void wait_until_thrown() { thrown_.wait(false); }

    std::vector<token_id> cached(int32_t branch) const { return cache_[size_t(branch)].token; }

    std::atomic<int64_t>                n_decoded{0};
    std::atomic<int64_t>                n_foreseen{0}; // rows of passes that were expected
    std::atomic<int64_t>                n_skipping{0}; // rows that were asked and have not read all of the text
    mutable std::atomic<int64_t>        n_saved{0};
    std::atomic<int64_t>                n_restored{0};
    std::atomic<int64_t>                n_shifted{0};
    std::array<std::atomic<int64_t>, 8> n_decoded_with{}; // by threads

  private:
    bool keeps_state() const { return b_.undo != duo::undo_kind::cells; }

    // Whether these are the text's tokens, or its first ones (n_least at least) and its last ones.
    static bool is_view(std::span<const token_id> own, std::span<const token_id> text, int32_t n_least);

    // What a pass leaves to go back to. If it has several texts, each has one row and at most n_together guesses.
    void keep_state(int32_t branch, std::span<const row> rows, bool drops);

    std::vector<token_id> expected_; // in the next pass
    size_t                n_threads_ = 0;
    float                 scale_     = 0.0f;
    std::vector<int32_t>  n_copied_  = std::vector<int32_t>(size_t(b_.n_branch), -1); // by branch; < 0: none
    std::vector<int32_t>  n_back_    = std::vector<int32_t>(size_t(b_.n_branch), 0);  // rows that snapshots reach back

    std::vector<std::vector<int32_t>> marks_{size_t(b_.n_branch)}; // positions, by branch

    struct one_at_a_time {
        explicit one_at_a_time(scripted_model & m) : m_(m) {
            REQUIRE(!m_.in_use_.exchange(true), "one thread at a time");
        }
        ~one_at_a_time() { m_.in_use_.store(false); }
        scripted_model & m_;
    };

    void tell_thrown();

    void check_row(int32_t i_row) const;

    // Two branches share a cell if they hold the same id; equal tokens in different cells are not shared.
    struct branch_cells {
        std::vector<token_id> token;
        std::vector<int64_t>  id;
        std::vector<float>    scale; // of an adapter, when it was computed

        void cut(size_t n) {
            scale.resize(std::min(scale.size(), n));
            token.resize(std::min(token.size(), n));
            id.resize(std::min(id.size(), n));
        }
        void leave_out(int32_t pos, int32_t n) {
            const auto from = [pos, n](auto & x) { x.erase(x.begin() + pos, x.begin() + pos + n); };
            from(token);
            from(id);
            from(scale);
        }
    };

    // Rows from the n-th on were not evaluated.
    void undo(std::span<const row> rows, size_t n);

    void check_room() const;

    size_t n_distinct() const;

    std::vector<branch_cells>          cache_{size_t(b_.n_branch)};
    std::vector<row>                   rows_;  // of the last decode
    std::vector<std::vector<token_id>> texts_; // of each of its rows, up to and with it
    int64_t                            n_cells_made_ = 0;
    int64_t                            n_chosen_     = 0;
    std::atomic<bool>                  in_use_{false};
    std::atomic<bool>                  hanging_{false};
    std::atomic<bool>                  released_{false};
    std::atomic<bool>                  thrown_{false};
};

} // namespace duo_test
