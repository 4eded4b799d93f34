// One step of the draft model: the nodes that it evaluates, their rows in the batch, and its times.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "draft_text.h"
#include "model/token_model.h"

namespace duo {

// A value; node_choice, step_evaluator and node_sender fill it in, one after the other.
class draft_step {
  public:
    // A text's part: its root, whose row comes after all that is missing of the text, or nodes of its tree.
    struct part {
        draft_text *         text = nullptr;
        std::vector<int32_t> nodes{};       // indices in the tree
        std::vector<int32_t> branches{};    // theirs
        size_t               i_row     = 0; // its first row
        size_t               n_rows    = 0;
        int32_t              n_made    = 0;     // children
        bool                 evaluated = false; // its last rows are those of the nodes

        [[nodiscard]] bool   reads() const { return !nodes.empty() && nodes.front() == 0; }
        [[nodiscard]] size_t row_of(size_t i_node) const { return i_row + n_rows - nodes.size() + i_node; }
    };

    void clear() {
        n_parts_ = 0;
        n_nodes = depth = 0;
        typical         = true;
        rows.clear();
    }

    // `p` gets the memory of an earlier part.
    void add(part & p) {
        if (n_parts_ == parts_.size()) {
            parts_.emplace_back();
        }
        std::swap(parts_[n_parts_++], p);
    }
    // Drops the parts without nodes.
    void drop_empty() {
        size_t n = 0;
        for (size_t i = 0; i < n_parts_; ++i) {
            if (!parts_[i].nodes.empty()) {
                std::swap(parts_[n++], parts_[i]);
            }
        }
        n_parts_ = n;
    }
    [[nodiscard]] std::span<part>       parts() { return {parts_.data(), n_parts_}; }
    [[nodiscard]] std::span<const part> parts() const { return {parts_.data(), n_parts_}; }

    std::vector<row> rows;
    bool             typical = true; // its duration says something about the next one's
    int32_t          n_nodes = 0;    // that were evaluated
    int32_t          depth   = 0;    // deepest level of the nodes that it made

    int64_t t0        = 0;
    int64_t busy0     = 0; // what the target's clock showed then
    int64_t t_rows    = 0; // the rows are evaluated
    int64_t beside_us = 0; // part of the time until then in which the target worked too

  private:
    std::vector<part> parts_; // more than n_parts_ are kept for their memory
    size_t            n_parts_ = 0;
};

} // namespace duo
