// Weights that lie in memory in the form of format.h before their model is loaded, as a packed file has them.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>

#include <ggml.h>

#include "base/file_map.h"
#include "page_system.h"

namespace duo::cpu {

struct packed_weight {
    ggml_type       type;   // in the model's file
    ggml_type       stored; // what it was packed as; another one for a draft's, see requantise.h
    int64_t         n_columns, n_rows, n_matrices;
    const uint8_t * data;
    size_t          n_bytes;
};

// By the tensors' names.
class packed_weights {
  public:
    // file: has the memory.
    explicit packed_weights(std::shared_ptr<const file_map> file) : file_(std::move(file)) {}

    void add(const std::string & name, const packed_weight & w) { all_.emplace(name, w); }

    // nullptr: there is none with this name, type and shape. stored: the type that the tensor's buffer keeps.
    [[nodiscard]] const packed_weight * find(const ggml_tensor * t, ggml_type stored) const;

    // Some page could not be read (file_map::lost()).
    [[nodiscard]] bool lost() const { return file_->lost(); }
    // Its pages are not needed again soon.
    void forget(const packed_weight & w) const { file_->forget(size_t(w.data - file_->data()), w.n_bytes); }
    // Where they lie.
    [[nodiscard]] const std::shared_ptr<const file_map> & file() const { return file_; }
    // Keeps the file mapped.
    [[nodiscard]] page_system pages() const;
    // Bytes that page readers have asked for so far.
    [[nodiscard]] uint64_t n_wanted() const { return n_wanted_->load(std::memory_order_relaxed); }

  private:
    std::shared_ptr<const file_map>                file_;
    std::unordered_map<std::string, packed_weight> all_;
    std::shared_ptr<std::atomic<uint64_t>>         n_wanted_ = std::make_shared<std::atomic<uint64_t>>(0);
};

} // namespace duo::cpu
