// Which position each cell of a KV cache holds. Attention adds a text's cells in the order of their positions, so a
// text's bits do not depend on where its cells are, nor on the texts that share the cache.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include <ggml.h>

namespace duo::cpu {

// For one context, whose thread uses it. libllama does not say which cells it chooses, but its graphs write them with
// GGML_OP_SET_ROWS nodes, whose second source lists the cells (llama-kv-cache.cpp, cpy_k).
class cell_order {
  public:
    // Of a graph: attentions, and tensors of the caches that it writes.
    struct nodes {
        int32_t n_attentions = 0;
        int32_t n_written    = 0;
        void    count(const ggml_tensor * node) {
            n_attentions += node->op == GGML_OP_FLASH_ATTN_EXT ? 1 : 0;
            n_written += writes_cells(node) ? 1 : 0;
        }
    };

    // A row of the batch: its position, and a number that all rows of its text share.
    // Rows of a picture may share a position; `within` is their order then.
    struct row {
        int32_t pos    = 0;
        int32_t text   = 0;
        int32_t within = 0;
    };

    // The next batch, which may be computed in several graphs; then its rows, in their order.
    void begin();
    void add(const row & r) { rows_.push_back(r); }

    // Called for each node before it is computed.
    void on_node(const ggml_tensor * node);

    // Tensors that graphs have written to, those of one cache after those of another.
    [[nodiscard]] std::vector<std::span<const ggml_tensor * const>> caches() const;
    // These cells of a cache were filled without a graph, and hold these positions of a text. tensor: any of the
    // cache's.
    void restored(const ggml_tensor * tensor, std::span<const int32_t> cells, std::span<const row> rows);
    // n positions of the text from `pos` on are free; those behind them become n lower.
    void shifted(int32_t text, int32_t pos, int32_t n);

    // The cells [0, n) of a cache's tensor in the order of positions; empty: they lie in this order.
    [[nodiscard]] std::span<const int32_t> cells(const ggml_tensor * cache, int64_t n);

    // The text of each token of the graph that is computed; empty: one text, or another number of tokens.
    [[nodiscard]] std::span<const int32_t> texts(int64_t n_tokens) const;

    // Whether the node writes rows of a batch into cells of a cache.
    [[nodiscard]] static bool writes_cells(const ggml_tensor * node) {
        return node->op == GGML_OP_SET_ROWS && node->view_src != nullptr && node->src[1]->type == GGML_TYPE_I64;
    }

  private:
    // The cells of one cache. A model with sliding windows has two caches. All layers of a cache use the same cells.
    struct table {
        std::vector<const ggml_tensor *> tensors;         // of its layers; the first one's writes are looked at
        const ggml_tensor *              cells = nullptr; // cells of the graph's rows: the same tensor for all layers
        std::vector<int32_t>             pos;             // by cell
        std::vector<int32_t>             text;            // by cell
        std::vector<int32_t>             within;          // by cell; empty: no row has any
        std::vector<int32_t>             order;           // of the first n_ordered cells, unless they are in order
        int64_t                          n_ordered = -1;  // -1: pos has changed
        size_t                           n_written = 0;   // rows of the batch
    };

    table &     table_of(const ggml_tensor * cache, const ggml_tensor * cells);
    void        write(table & t, const ggml_tensor * cells);
    static void set(table & t, size_t cell, const row & r);
    static void order_pictures(table & t);

    std::vector<table>                              tables_;
    std::unordered_map<const ggml_tensor *, size_t> index_; // of a layer's tensor in tables_
    std::vector<row>                                rows_;
    std::vector<int32_t>                            texts_; // of the graph's rows
    std::vector<int32_t>                            count_; // scratch
};

} // namespace duo::cpu
