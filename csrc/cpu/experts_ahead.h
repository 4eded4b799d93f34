// Fetches the experts that the next layers will probably need, while the target computes, where passes have to read
// from a disk.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "experts/expert_forecast.h"
#include "page_fetcher.h"
#include "page_reader.h"

namespace duo::cpu {

enum class foresight : uint8_t {
    off,    // experts are read when their router has chosen them
    needed, // where passes have to read from a disk
    always, // and recall is measured; for tests
};

// Of this process, at any time.
void      set_foresight(foresight how);
foresight foresight_now();

// One context's. Like the context, only one thread at a time may use it.
class experts_ahead {
  public:
    // pages: of the same context; it must outlive this object.
    experts_ahead(const page_reader & pages, page_system system, std::function<int64_t()> now = now_us);

    // Of a row of a pass.
    struct row {
        token_id token;
        bool     output;
    };

    // Whether it wants to know of products.
    [[nodiscard]] bool active() const;
    // Whether expect() does anything.
    [[nodiscard]] bool expects() const { return forecast_ != nullptr && active(); }
    // Of the last experts; -1: they are not mapped.
    [[nodiscard]] int32_t layer_now() const { return pages_.layer_now(); }

    // A pass over these rows begins, in their order; it may be computed in several graphs. No rows: they are not known.
    void begin_pass(std::span<const row> rows);
    // The next pass may have these tokens.
    void expect(std::span<const token_id> tokens);
    // What the router of this layer says of the hidden states of the layer before it, [rows][n_expert].
    void hear_router(int32_t layer, std::span<const float> scores);
    // The page reader was told of a product with experts, of n_expert.
    void before_experts(const expert_choice & choice, int32_t n_expert);

    // The layer whose router hear_router() wants after layer `now`, for so many rows; -1: none.
    [[nodiscard]] int32_t layer_after(int32_t now, size_t n_rows) const;

    // What it has ordered last: of the next layers, in the order in which they are needed.
    [[nodiscard]] std::span<const layer_expert> ordered() const { return chosen_; }
    // nullptr: there is none yet.
    [[nodiscard]] const expert_forecast * forecast() const { return forecast_.get(); }
    [[nodiscard]] const page_fetcher &    fetcher() const { return fetcher_; }

  private:
    void                 begin_graph();
    void                 make_forecast();
    void                 set_tokens(size_t n_rows);
    void                 order(int32_t first);
    [[nodiscard]] double n_in_time() const;

    const page_reader &      pages_;
    std::function<int64_t()> now_;

    std::unique_ptr<expert_forecast> forecast_;      // nullptr: no whole pass was seen
    expert_shape                     seen_;          // of the layers so far
    std::vector<int32_t>             n_experts_;     // of each layer
    size_t                           n_bytes_ = 0;   // of an expert, the mean
    std::vector<row>                 rows_;          // of the pass
    size_t                           i_first_  = 0;  // of the graph's rows
    size_t                           n_graph_  = 0;  // rows of its first layer
    size_t                           n_most_   = 0;  // of any graph so far
    int32_t                          layer_    = -1; // the last one; -1: the graph has not come to any
    uint64_t                         round_    = 1;  // of the graph
    int64_t                          t_layer_  = 0;  // when the layer's experts were chosen
    double                           layer_us_ = 0.0;
    std::vector<token_id>            tokens_;   // scratch: of the graph's rows in a layer
    std::vector<layer_expert>        chosen_;   // see ordered()
    page_reader::matrices            matrices_; // scratch
    page_fetcher                     fetcher_;
};

} // namespace duo::cpu
