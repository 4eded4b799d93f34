// What the header of a draft head (EAGLE-3, MTP layers, DFlash) says of the target that it was made for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace duo {

enum class head_kind : uint8_t {
    eagle3, // reads the inputs of some of the target's layers
    mtp,    // multi-token prediction: reads the state after the target's last layer
    dflash, // block diffusion (arXiv 2602.06036): reads like EAGLE-3, and guesses a block of tokens at once; DSpark
            // adds a small matrix that makes each guess depend on the one before
};

struct head_file {
    head_kind            kind = head_kind::eagle3;
    std::vector<int32_t> layers{};         // EAGLE-3, DFlash: of the target, whose inputs it reads
    int64_t              n_target = 0;     // floats of one of these inputs, or of the state
    int64_t              n_embd   = 0;     // floats of its own states
    int32_t              n_block  = 1;     // DFlash: tokens of a block
    int32_t              n_known  = 1;     // DFlash: of these, tokens whose rows guess nothing
    int32_t              mask     = 0;     // DFlash: token in place of those that are not
    bool                 causal   = false; // DFlash: a token of a block only sees those before it
    bool                 chained  = false; // DSpark: a row's guess depends on the best guess before it

    // Without them it uses the target's matrices.
    bool own_embedding = true;
    bool own_output    = true;

    // As llama.cpp's --spec-type draft-... spells it.
    [[nodiscard]] std::string name() const {
        return kind == head_kind::eagle3 ? "eagle3" : kind == head_kind::mtp ? "mtp" : chained ? "dspark" : "dflash";
    }

    [[nodiscard]] int32_t n_inputs() const {
        return int32_t(kind == head_kind::mtp ? n_target : int64_t(layers.size()) * n_target);
    }
};

// mtp: the head is the file's MTP layers, whatever else it has. Otherwise a file with MTP layers is a head if it has no
// others. Nothing: the file is another model. Throws duo::error as read_file_header does, for a head that llama.cpp
// cannot run or duo does not support, and with `mtp` for a file without such layers.
std::optional<head_file> read_head_file(const std::string & path, bool mtp = false);

// Why the head does not fit the target, by the headers of both; empty: it does. Throws duo::error as read_file_header
// does.
std::string head_mismatch(const std::string & path, const head_file & head, const std::string & target);

} // namespace duo
