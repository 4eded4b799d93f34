// Rows of texts, and libllama's positions of them. They differ behind a picture whose positions have two dimensions
// (M-RoPE): it takes fewer positions than rows.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model/token_model.h"
#include "model_cache.h"

namespace duo {

// For the functions of token_model with these names: a branch's cache by rows. The cache must outlive it.
class text_rows {
  public:
    text_rows(model_cache & cache, int32_t n_branches) : cache_(cache), pictures_(size_t(n_branches)) {}

    bool                  rollback(int32_t branch, int32_t row);
    bool                  shift(int32_t branch, int32_t row, int32_t n);
    int32_t               take_back(int32_t branch, int32_t row);
    void                  fork(int32_t from, int32_t to, int32_t row);
    [[nodiscard]] int32_t n_held(int32_t branch) const;

    [[nodiscard]] std::string save(int32_t branch) const;
    void                      restore(int32_t branch, std::span<const char> saved);

    // The rows with libllama's positions; valid until the next call.
    std::span<const row> placed(std::span<const row> rows);
    // A picture of so many rows was evaluated at this row.
    void add(int32_t branch, int32_t row, int32_t n_rows, int32_t n_pos);

  private:
    // Such a picture.
    struct picture_place {
        int32_t row    = 0; // its first one
        int32_t n_rows = 0;
        int32_t n_pos  = 0;
    };

    [[nodiscard]] int32_t        pos_of(int32_t branch, int32_t row) const;
    [[nodiscard]] int32_t        rows_of(int32_t branch, int32_t n_pos) const; // rows that so many positions hold
    void                         forget(int32_t branch, int32_t row);          // pictures that end behind it
    static std::span<const char> split(std::span<const char> saved, std::vector<picture_place> & out);

    model_cache &                           cache_;
    std::vector<std::vector<picture_place>> pictures_; // by branch
    std::vector<row>                        placed_;
};

} // namespace duo
