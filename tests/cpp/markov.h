// Models whose next token is drawn from a known distribution, and Pearson's test of what was drawn.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "scripted_model.h"

namespace duo_test {

// The distribution depends on the last two tokens. Different accents give different ones; `blend` is how much of the
// plain one is in them.
struct markov {
    uint64_t accent   = 0;
    double   blend    = 0.0;
    int32_t  n_tokens = 5; // from 1 on

    std::vector<candidate> after(std::span<const token_id> text) const;
};

class markov_model : public scripted_model {
  public:
    markov_model(const behaviour & b, const markov & m) : scripted_model(b), markov_(m) {}

    // With the shared noise, whatever the temperature is.
    int32_t candidates(int32_t i_row, const sampling_params & s, std::span<const token_id> text,
                       std::span<candidate> out) override;

    void chances(int32_t i_row, const sampling_params & s, std::span<const token_id> text,
                 std::vector<candidate> & out) override;

  private:
    const markov markov_;
};

// Pearson's statistic of counts by cell against their chances: about normal with mean 0 and deviation 1.
class fit {
  public:
    void add(double observed, double expected);

    // n_rules: sums that the counts must have.
    double deviation(int32_t n_rules = 1) const;

  private:
    double  chi2_         = 0.0;
    double  few_observed_ = 0.0;
    double  few_expected_ = 0.0;
    int32_t n_cells_      = 0;
};

// Counts what followed each pair of tokens in texts.
class transitions {
  public:
    // The first n_prompt tokens were not drawn.
    void add(std::span<const token_id> text, size_t n_prompt);

    int64_t n() const { return n_; }

    double deviation(const markov & m) const;

  private:
    std::map<std::pair<token_id, token_id>, std::map<token_id, int64_t>> counts_;
    int64_t                                                              n_ = 0;
};

} // namespace duo_test
