// The model's file that a packed file was made from, byte for byte. A packed file that has the rest of it
// (packed_file.h) takes its place: libllama and libggml read this as a stream.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <llama.h>

#include "base/freed_by.h"
#include "packed_file.h"

namespace duo {

class unpacked_file {
  public:
    // Throws duo::error: it cannot be used (packed_file), or has only the packed weights.
    explicit unpacked_file(const std::string & path);

    [[nodiscard]] uint64_t            size() const { return n_bytes_; }
    [[nodiscard]] const packed_file & packed() const { return packed_; }
    // Some page could not be read, so some bytes were wrong.
    [[nodiscard]] bool lost() const { return packed_.bytes().lost(); }

    // Bytes [from, from + n) of the model's file, as many as there are. Returns how many. n_threads: of a large part.
    size_t read(uint64_t from, uint8_t * to, size_t n, int n_threads) const;

  private:
    // A part of the model's file.
    struct span {
        uint64_t              begin, n_bytes;
        uint64_t              offset; // in the packed file
        const packed_tensor * packed; // nullptr: it lies there as it is
    };

    void unpack(const span & s, uint64_t from, uint8_t * to, size_t n, int n_threads) const;

    packed_file       packed_;
    uint64_t          n_bytes_;
    std::vector<span> spans_; // without gaps
};

using shared_unpacked = std::shared_ptr<const unpacked_file>;

// nullptr: `path` is no packed file. Throws duo::error.
shared_unpacked open_unpacked(const std::string & path);

// Bytes [from, from + n) of a model's file, packed or not, as many as can be read. Returns how many. Throws duo::error.
size_t read_bytes(const std::string & path, uint64_t from, uint8_t * to, size_t n);

// Whether this system has such streams.
constexpr bool has_streams =
#if defined(__linux__)
    true;
#else
    false;
#endif

// To read it from its beginning. Throws duo::error: there are no such streams on this system.
std::unique_ptr<std::FILE, freed_by<std::fclose>> open_stream(shared_unpacked file);

// As libllama loads a model, from `file` if there is one. nullptr: its log says why.
llama_model * load_model(const std::string & path, const shared_unpacked & file, llama_model_params params);

} // namespace duo
