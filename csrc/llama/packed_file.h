// A file of weights that duo has packed for its kernels. Loading a model maps it, in place of packing.
//
// It is a GGUF file whose tensors are bytes. They have the names of the model's and the form of cpu/format.h, which is
// the same for all instruction sets. Its header says of which model it was made, and has a sum of each piece.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/file_map.h"
#include "cpu/packed_weights.h"
#include "model_options.h"

namespace duo {

// Changes with cpu/format.h and with the header of these files.
constexpr uint32_t packed_version = 1;

struct packed_tensor {
    std::string name;
    ggml_type   type, stored; // see cpu::packed_weight
    int64_t     n_columns, n_rows, n_matrices;
    uint64_t    offset, n_bytes; // in the file
};

class packed_file {
  public:
    // source: what the file must say of its model (see pack_model). Throws duo::error: it is no such file, of another
    // version or damaged, or of another model. Weights are not read.
    packed_file(const std::string & path, const std::string & source);

    // Reads all weights with so many threads. keep_going: gets the share that is read; false: stop. Throws duo::error:
    // a piece is damaged, or error_kind::cancelled.
    void check(int n_threads, const std::function<bool(float)> & keep_going) const;

    // To be used; it keeps the file mapped.
    [[nodiscard]] std::shared_ptr<const cpu::packed_weights> weights() const;

    // Keeps it in memory as far as the system allows.
    void lock() const { map_->lock(); }

  private:
    std::string                     path_;
    std::shared_ptr<const file_map> map_;
    std::vector<packed_tensor>      tensors_;
    std::vector<uint64_t>           sums_; // of pieces, tensor by tensor
};

// Packs the weights of `model` for duo's kernels into the file `out`, which is complete or not there at all. source:
// any text that tells this model from others. keep_going: gets the share that is done; false: stop. Returns the number
// of bytes. Throws duo::error: no space, no weights that duo's kernels take, or error_kind::cancelled.
uint64_t pack_model(const std::string & model, const std::string & out, const std::string & source,
                    const weight_packing & packing, int n_threads, const std::function<bool(float)> & keep_going);

} // namespace duo
