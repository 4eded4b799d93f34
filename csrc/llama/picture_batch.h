// The rows of a picture as llama_decode wants them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <llama.h>

#include "projector.h"
#include "saved_cells.h"

namespace duo {

// Parts of one picture, one after the other. The picture must outlive it.
class picture_batch {
  public:
    picture_batch(const encoded_picture & p, int32_t branch)
        : picture_(p), branch_(branch), n_seq_(size_t(p.n_rows), 1), seq_(size_t(p.n_rows), &branch_),
          output_(size_t(p.n_rows), 0) {}
    picture_batch(const picture_batch &)             = delete;
    picture_batch & operator=(const picture_batch &) = delete;

    // The n rows from `first` on.
    void choose(int32_t first, int32_t n) {
        first_ = first;
        n_     = n;
        pos_.clear();
        for (int32_t part = 0; part < picture_.n_parts; ++part) {
            const auto from = picture_.pos.begin() + ptrdiff_t(part) * picture_.n_rows + first;
            pos_.insert(pos_.end(), from, from + n);
        }
        within_.clear();
        for (int32_t i = 0; picture_.n_parts > 2 && i < n; ++i) { // time, y, x
            within_.push_back(place_within(pos_[size_t(2 * n + i)], pos_[size_t(n + i)]));
        }
    }

    [[nodiscard]] llama_batch get() {
        // llama_decode only reads it
        auto * embd = const_cast<float *>(picture_.rows) + size_t(first_) * size_t(picture_.n_embd);
        return {n_, nullptr, embd, pos_.data(), n_seq_.data(), seq_.data(), output_.data()};
    }
    // See model_context::evaluate.
    [[nodiscard]] std::span<const int32_t> within() const { return within_; }
    // Of the whole picture.
    [[nodiscard]] llama_pos first_pos() const { return picture_.pos.front(); }

  private:
    const encoded_picture &     picture_;
    llama_seq_id                branch_;
    int32_t                     first_ = 0;
    int32_t                     n_     = 0;
    std::vector<llama_pos>      pos_;
    std::vector<int32_t>        within_;
    std::vector<int32_t>        n_seq_;
    std::vector<llama_seq_id *> seq_;
    std::vector<int8_t>         output_;
};

// While it exists, the rows of a pass see each other, if they are to.
class causal_pause {
  public:
    causal_pause(llama_context * context, bool wanted) : context_(wanted ? context : nullptr) { set(false); }
    ~causal_pause() { set(true); }
    causal_pause(const causal_pause &)             = delete;
    causal_pause & operator=(const causal_pause &) = delete;

  private:
    void set(bool causal) {
        if (context_ != nullptr) {
            llama_set_causal_attn(context_, causal);
        }
    }

    llama_context * context_;
};

} // namespace duo
