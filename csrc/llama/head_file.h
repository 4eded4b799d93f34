// What the header of a draft head (EAGLE-3) says of the target that it was made for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace duo {

struct head_file {
    std::vector<int32_t> layers;       // of the target, whose inputs it reads
    int64_t              n_target = 0; // floats of one of these inputs
    int64_t              n_embd   = 0; // floats of its own states

    // Without them it uses the target's matrices.
    bool own_embedding = false;
    bool own_output    = false;

    [[nodiscard]] int32_t n_inputs() const { return int32_t(int64_t(layers.size()) * n_target); }
};

// Nothing: the file is another model. Throws duo::error as read_file_header does, and for a head whose header libllama
// would not accept.
std::optional<head_file> read_head_file(const std::string & path);

// Why the head does not fit the target, by the headers of both; empty: it does. Throws duo::error as read_file_header
// does.
std::string head_mismatch(const std::string & path, const head_file & head, const std::string & target);

} // namespace duo
