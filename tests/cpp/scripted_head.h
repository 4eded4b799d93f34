// A draft head without a model. A state says which text it comes from, so each row shows whether it was made of the
// right one: of the text before its token, as the target or the head itself has read it. A head of blocks guesses the
// text below a row by itself, whatever tokens it is asked about.
#pragma once

#include <sstream>
#include <string>

#include "scripted_base.h"

namespace duo_test {

using duo::decode_status;
using duo::row;

class scripted_head : public scripted_base {
  public:
    explicit scripted_head(const behaviour & b);
    ~scripted_head() override;

    void encode(std::span<const float> features, std::span<float> out) override;

    decode_status decode(std::span<const row> rows, const std::atomic<bool> & stop) override;

    void state(int32_t i_row, std::span<float> out) const override;

    int32_t candidates(int32_t i_row, const sampling_params & s, std::span<const token_id> text,
                       std::span<candidate> out) override;

    float logprobs(int32_t, token_id, std::span<candidate>) override { return 0.0f; }

    bool rollback(int32_t branch, int32_t pos) override;

    void fork(int32_t from, int32_t to, int32_t pos) override;

    int32_t n_held(int32_t branch) const override { return cache_[size_t(branch)].end; }

    // The positions that the branch holds.
    std::string save(int32_t branch) const override;

    void restore(int32_t branch, std::span<const char> saved) override;

    // For the test's own thread, between texts.
    int32_t first_held(int32_t branch) const { return cache_[size_t(branch)].first; }

    std::atomic<int64_t> n_bridged{0}; // rows made of a later state, as theirs is not known
    std::atomic<int64_t> n_decoded{0};
    std::atomic<int64_t> n_true{0}; // rows made of the target's states

  private:
    std::vector<candidate> after(std::span<const token_id> text, const sampling_params & s) const;

    // Positions that a branch holds; an empty one may begin anywhere.
    struct span {
        int32_t first = 0, end = 0;
    };

    void cut(int32_t branch, int32_t pos);

    std::vector<span>     cache_{size_t(b_.n_branch)};
    std::vector<row>      rows_;
    std::vector<uint64_t> hashes_; // of the texts up to rows_
};

} // namespace duo_test
