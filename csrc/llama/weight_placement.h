// Which weights go into which memory: those for duo's CPU kernels, and the user's choices.
#pragma once

#include <deque>
#include <map>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include <llama.h>

#include "file_weights.h"
#include "model_options.h"

namespace duo {

// The type in which a weight for duo's kernels is kept: its own, or the one of this packing. A recurrent layer's keeps
// its own: what fewer bits cost there was not measured.
ggml_type kept_type(const weight_packing & packing, const file_weight & w);

// For llama_model_params.tensor_buft_overrides; must live until the model is loaded.
class weight_placement {
  public:
    // path: the file (the first part of a split model). types: ggml's names of the weight types that go to duo's
    // kernels. n_gpu_layers < 0: all, 0: none; without a device it must be 0. overrides: (pattern, name of a buffer
    // type), like llama.cpp's -ot; CPU means that device, so duo's kernels take what they can there. mtp: the file's
    // MTP layers are loaded, too. packing: where a weight's shape does not suit it, the weight stays as it is. Throws
    // duo::error for an invalid pattern and for an unknown buffer.
    weight_placement(const std::string & path, const std::vector<std::string> & types, int32_t n_gpu_layers,
                     const std::vector<std::pair<std::string, std::string>> & overrides, bool mtp = false,
                     const weight_packing & packing = {});

    // nullptr-terminated; nullptr if nothing is placed.
    [[nodiscard]] const llama_model_tensor_buft_override * entries() const;

    // The file has MTP layers; and other ones. Passes of the target do not use MTP layers, so what follows counts them
    // only if there are no others.
    [[nodiscard]] bool has_mtp() const { return has_mtp_; }
    [[nodiscard]] bool has_trunk() const { return has_trunk_; }

    // Some weights besides experts are several matrices, as attn_k_b.
    [[nodiscard]] bool has_planes() const { return has_planes_; }

    // Number of product weights for duo's kernels, and of those for stock kernels on the CPU.
    [[nodiscard]] int n_duo() const { return n_duo_; }
    [[nodiscard]] int n_stock() const { return n_stock_; }
    // ggml's names of the types of the latter, each once.
    [[nodiscard]] const std::vector<std::string> & stock_types() const { return stock_types_; }
    // Bytes that duo's take, as they are packed.
    [[nodiscard]] uint64_t n_duo_bytes() const { return n_duo_bytes_; }
    // The name of the output matrix if it goes to duo's kernels; empty: it does not.
    [[nodiscard]] const std::string & duo_output() const { return duo_output_; }
    // Number of those for duo's kernels that are requantised.
    [[nodiscard]] int n_packed() const { return n_packed_; }
    // Number of other F32 matrices that stock kernels compute, as routers of experts if stock kernels compute something
    // else.
    [[nodiscard]] int n_small() const { return n_small_; }

    // ggml's names of the types of all such weights on the CPU, each once.
    [[nodiscard]] const std::vector<std::string> & cpu_types() const { return cpu_types_; }

    // Bytes of the matrices that a pass multiplies by on the CPU, by the type in which they are kept. Empty if some are
    // experts, because the tokens of a pass decide how many experts it reads.
    [[nodiscard]] std::map<std::string, uint64_t> cpu_bytes() const;

  private:
    // What the user chose for some tensors. The first pattern that fits a name counts.
    struct choice {
        std::regex                 pattern;
        std::string                text;
        ggml_backend_buffer_type_t memory; // of the CPU: the device, with all kernels it has
    };

    void                         add(const std::string & pattern, ggml_backend_buffer_type_t buft);
    void                         read_choices(const std::vector<std::pair<std::string, std::string>> & overrides);
    [[nodiscard]] const choice * choice_of(const std::string & name) const;

    void leave_to_stock(ggml_type type);
    void count_bytes(ggml_type type, int64_t n_columns, int64_t n_rows, int64_t n_matrices);
    void place_duo(const std::string & path, const std::vector<std::string> & types, int32_t n_gpu_layers, bool mtp,
                   const weight_packing & packing);

    std::vector<choice>                           choices_;
    std::deque<std::string>                       patterns_; // entries_ points into it
    std::vector<llama_model_tensor_buft_override> entries_;
    std::vector<std::string>                      cpu_types_;
    std::vector<std::string>                      stock_types_;
    std::map<std::string, uint64_t>               cpu_bytes_;
    bool                                          bytes_known_ = true;
    bool                                          has_mtp_     = false;
    bool                                          has_trunk_   = true;
    bool                                          has_planes_  = false;
    std::string                                   duo_output_;
    uint64_t                                      n_duo_bytes_ = 0;
    int                                           n_duo_       = 0;
    int                                           n_stock_     = 0;
    int                                           n_packed_    = 0;
    int                                           n_small_     = 0;
};

} // namespace duo
