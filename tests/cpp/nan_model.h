// A scripted model with a token that computes NaN. Its row is NaN, so are all rows after it, and so may be any other
// row of the same pass: where attention gives a masked cell the weight 0, 0 * NaN is NaN.
#pragma once

#include <set>
#include <vector>

#include "scripted_model.h"

namespace duo_test {

class nan_model : public scripted_model {
  public:
    // spoils: how often another row of its pass is NaN too.
    nan_model(const behaviour & b, token_id bad, double spoils) : scripted_model(b), bad_(bad), spoils_(spoils) {}

    decode_status decode(std::span<const row> rows, const std::atomic<bool> & stop) override {
        const decode_status status = scripted_model::decode(rows, stop);
        is_nan_.assign(rows.size(), false);
        const bool any = std::any_of(rows.begin(), rows.end(), [this](const row & r) { return r.token == bad_; });
        for (size_t i = 0; status == decode_status::ok && i < rows.size(); ++i) {
            const row &              r   = rows[i];
            const std::set<size_t> & own = nan_[size_t(r.branch)];
            is_nan_[i]                   = r.token == bad_ || (!own.empty() && *own.begin() < size_t(r.pos)) ||
                         (any && dice(hash64(uint64_t(n_decoded.load())) ^ i).chance(spoils_));
            for (int32_t b = r.branch; is_nan_[i] && b < r.branch + r.n_branches; ++b) {
                nan_[size_t(b)].insert(size_t(r.pos));
            }
        }
        return status;
    }

    int32_t candidates(int32_t i_row, const sampling_params & s, std::span<const token_id> text,
                       std::span<candidate> out) override {
        if (is_nan_[size_t(i_row)]) {
            throw duo::nan_error("computes NaN");
        }
        return scripted_model::candidates(i_row, s, text, out);
    }

    bool rollback(int32_t branch, int32_t pos) override {
        const bool done = scripted_model::rollback(branch, pos);
        forget(branch, done ? pos : n_held(branch));
        return done;
    }

    int32_t take_back(int32_t branch, int32_t pos) override {
        const int32_t n = scripted_model::take_back(branch, pos);
        forget(branch, n);
        return n;
    }

    void fork(int32_t from, int32_t to, int32_t pos) override {
        scripted_model::fork(from, to, pos);
        nan_[size_t(to)] = nan_[size_t(from)];
        forget(to, pos);
    }

  private:
    void forget(int32_t branch, int32_t pos) {
        auto & own = nan_[size_t(branch)];
        own.erase(own.lower_bound(size_t(pos)), own.end());
    }

    const token_id                bad_;
    const double                  spoils_;
    std::vector<bool>             is_nan_;                   // of each row of the last pass
    std::vector<std::set<size_t>> nan_{size_t(b_.n_branch)}; // positions, by branch
};

} // namespace duo_test
