// A model's file as libllama reads it, without the weights for duo's kernels: these go from the file to their buffers
// by themselves. libllama would read each tensor into memory of its own first, with one thread. A model in several
// parts is one file for libllama.
#pragma once

#include <cstdio>
#include <functional>
#include <memory>
#include <string>

#include "cpu/weight_memory.h"

namespace duo {

class file_reader;

class partial_file {
  public:
    // Whether libllama can read this file so here: it has no tensor that libllama maps in any case. Throws duo::error:
    // the file cannot be read.
    static bool can_read(const std::string & path);

    // weights: knows which tensors to leave out. Throws duo::error: the file cannot be read.
    partial_file(const std::string & path, const cpu::weight_loading & weights);
    ~partial_file();
    partial_file(const partial_file &)             = delete;
    partial_file & operator=(const partial_file &) = delete;

    // For llama_model_load_from_file_ptr.
    [[nodiscard]] std::FILE * stream() const { return stream_.get(); }

    // Bytes of the largest tensor.
    [[nodiscard]] size_t n_most() const;

    // How much of the file libllama has read so far.
    [[nodiscard]] float share_read() const;

    // Gives it the tensors that were left out. keep_going: gets the share that is done; false: stop. Returns whether
    // all were given.
    bool fill(cpu::weight_loading & weights, const std::function<bool(float)> & keep_going) const;

  private:
    struct closer {
        void operator()(std::FILE * f) const { std::fclose(f); }
    };
    std::unique_ptr<file_reader>       reader_;
    std::unique_ptr<std::FILE, closer> stream_; // reads from it
};

} // namespace duo
