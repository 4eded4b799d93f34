// A file of weights that duo has packed for its kernels. Loading a model maps it, in place of packing.
//
// It is a GGUF file whose tensors are bytes. They have the names of the model's and the form of cpu/format.h, which is
// the same for all instruction sets. Its header says of which model it was made, and has a sum of each piece. If it
// also has the rest of the model's file, it takes the place of that file (unpacked_file.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file_map.h"
#include "cpu/packed_weights.h"
#include "model_options.h"

namespace duo {

// Changes with cpu/format.h and with the header of these files.
constexpr uint32_t packed_version = 1;
// Of a file that takes the place of the model's. It may be all that is left of a model, so whoever changes it keeps
// what reads the versions before.
constexpr uint32_t whole_version = 2;

struct packed_tensor {
    std::string name;
    ggml_type   type, stored; // see cpu::packed_weight
    int64_t     n_columns, n_rows, n_matrices;
    uint64_t    offset, n_bytes; // in the file
};

// All other bytes of the model's file, in their order.
struct packed_rest {
    uint64_t              n_source = 0; // bytes of the model's file; 0: this is not here
    uint64_t              n_front  = 0; // bytes of its header, which the rest begins with
    uint64_t              sum      = 0; // of all its bytes: see add_to_sum
    std::vector<uint64_t> places{};     // of the tensors, in the model's file
    uint64_t              offset = 0, n_bytes = 0;
};

struct packed_header;
struct summed_piece;

class packed_file {
  public:
    // alone: there is no other file to have the weights from. Throws duo::error: it is no such file, of another version
    // or damaged. Weights are not read.
    explicit packed_file(const std::string & path, bool alone = false);

    // Throws duo::error: it was made of another model. source: what the file must say of its model (see pack_model).
    void check_source(const std::string & source) const;

    // Reads all weights with so many threads. keep_going: gets the share that is read; false: stop. Throws duo::error:
    // a piece is damaged, or error_kind::cancelled.
    void check(int n_threads, const std::function<bool(float)> & keep_going) const;

    // To be used; it keeps the file mapped.
    [[nodiscard]] std::shared_ptr<const cpu::packed_weights> weights() const;

    [[nodiscard]] const packed_header & header() const { return *header_; }
    [[nodiscard]] const file_map &      bytes() const { return *map_; }

    // Keeps it in memory as far as the system allows.
    void lock() const { map_->lock(); }

  private:
    // Throws duo::error, as the constructor.
    void                read_header();
    [[nodiscard]] error unusable(const std::string & why) const;
    // Throws duo::error: one of these pieces is damaged.
    void check_pieces(const std::vector<size_t> & which, int n_threads) const;

    std::string                                      path_;
    bool                                             alone_;
    std::shared_ptr<const file_map>                  map_;
    std::shared_ptr<const packed_header>             header_;
    std::shared_ptr<const std::vector<summed_piece>> pieces_;
};

// What a packed file says of where it comes from.
struct packed_origin {
    std::string source;  // any text that tells the model from others
    std::string release; // of duo, which can read the file if no other can
};

// Packs the weights of `model` for duo's kernels into the file `out`, which is complete or not there at all. whole:
// with the rest of the model's file, so that `out`, which must be a new file, can take its place; it is read back from
// the disk and compared with the model's file. keep_going: gets the share that is done; false: stop. Returns the number
// of bytes. Throws duo::error: no space, no weights that duo's kernels take, whole and a model that is split or
// requantised, or error_kind::cancelled.
uint64_t pack_model(const std::string & model, const std::string & out, const packed_origin & origin,
                    const weight_packing & packing, bool whole, int n_threads,
                    const std::function<bool(float)> & keep_going);

// Writes the model's file that the packed file was made from, byte for byte, if it has all of it, into a new file. It
// is read back from the disk and compared with the sum of the model's. Throws duo::error.
void unpack_model(const std::string & packed, const std::string & out, int n_threads,
                  const std::function<bool(float)> & keep_going);

// Its memory is free again once no packed_file is left.
void forget_packed_header(const std::string & path);

} // namespace duo
