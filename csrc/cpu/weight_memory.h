// The memory of a weight buffer. It asks for huge pages: with small pages, page tables cost a quarter of the read
// speed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

#include "packed_weights.h"

namespace duo::cpu {

// The loading of a model in this thread, while it exists: the weight buffers that are made meanwhile belong to it.
class weight_loading {
  public:
    struct wishes {
        bool lock = false; // buffers stay in memory, as far as the system allows
        bool copy = false; // packed weights come into a buffer's own memory; otherwise they stay where they lie
    };

    // packed: weights that nobody has to read; nullptr: there are none.
    weight_loading(std::shared_ptr<const packed_weights> packed, wishes w);
    ~weight_loading();
    weight_loading(const weight_loading &)             = delete;
    weight_loading & operator=(const weight_loading &) = delete;

    // libllama reads one row of each tensor of these buffers, in vain: they look that small. give() brings the weights
    // afterwards, from where the file lies in memory. Call it before the buffers are made.
    void fill_later() { later_ = true; }

    // Whether a weight buffer has the tensor of this name.
    [[nodiscard]] bool has(const std::string & name) const { return tensors_.contains(name); }
    // Number of tensors in weight buffers, and of those whose weights are packed already.
    [[nodiscard]] size_t n_placed() const { return n_placed_; }
    [[nodiscard]] size_t n_packed() const { return n_packed_; }
    // Whether give() reads what the file has of this tensor.
    [[nodiscard]] bool reads(const std::string & name) const { return !tensors_.at(name).is_packed; }
    // After fill_later(), for each tensor. file: the weights as the file has them; not read if they are packed already.
    // False: the tensor has another number of bytes.
    [[nodiscard]] bool give(const std::string & name, const uint8_t * file, size_t n_bytes);

    // Whether what libllama sets now is in vain.
    static bool ignores();

    // For the buffers. is_packed: the tensor's weights are packed already.
    void                                                        note(ggml_tensor * t, bool is_packed);
    [[nodiscard]] const std::shared_ptr<const packed_weights> & packed() const { return packed_; }
    [[nodiscard]] wishes                                        wanted() const { return wishes_; }

  private:
    struct whole_tensor {
        ggml_tensor *          tensor;
        std::array<int64_t, 3> ne; // its rows and more, while it looks like one row
        bool                   is_packed;
    };

    weight_loading *                              before_;
    std::shared_ptr<const packed_weights>         packed_;
    wishes                                        wishes_;
    bool                                          later_ = false;
    std::unordered_map<std::string, whole_tensor> tensors_;
    size_t                                        n_placed_ = 0;
    size_t                                        n_packed_ = 0;
};

class weight_memory {
  public:
    // nullptr: there is not enough memory (note_shortage).
    static std::unique_ptr<weight_memory> make(size_t size);
    ~weight_memory();
    weight_memory(const weight_memory &)             = delete;
    weight_memory & operator=(const weight_memory &) = delete;

    [[nodiscard]] void * base() const { return base_; }
    [[nodiscard]] size_t size() const { return size_; } // bytes

    // Decides where the weights of a tensor are: in its place in this memory, of n_bytes, or where they lie packed.
    // False: there is not enough memory (note_shortage).
    [[nodiscard]] bool place(ggml_tensor * t, ggml_type stored, size_t n_bytes) const;
    // Whether they were packed before; then they are in place now.
    [[nodiscard]] bool fill(const ggml_tensor * t, ggml_type stored) const;

  private:
    weight_memory(void * base, size_t size, std::shared_ptr<const packed_weights> packed, bool copies);

    void *                                base_;
    size_t                                size_;
    std::shared_ptr<const packed_weights> packed_; // nullptr: all weights are packed when they are read
    bool                                  copies_;
};

} // namespace duo::cpu
