#include "head_rows.h"

#include <algorithm>
#include <variant>
#include <vector>

#include "file_header.h"
#include "unpacked_file.h"

namespace duo {

namespace {

constexpr const char * advice = "; convert the head again";

int64_t number(const file_header & h, const std::string & key, int64_t otherwise) {
    const auto * n = h.value_as<int64_t>(key);
    return n == nullptr ? otherwise : *n;
}

// Empty: the file ends before them, or cannot be read.
std::vector<int64_t> numbers(const file_header & h, const header_tensor & t) {
    std::vector<int64_t> out(size_t(t.shape.front()));
    const size_t         n = out.size() * sizeof out.front();
    return read_bytes(h.parts[t.part], t.offset, reinterpret_cast<uint8_t *>(out.data()), n) == n
               ? out
               : std::vector<int64_t>();
}

std::string fault_of_proposed(const file_header & h, const header_tensor & d2t, int64_t n_vocab) {
    if (d2t.type != "i64" || d2t.shape.size() != 1) {
        return " lists the tokens that it proposes (d2t) as " + d2t.type + ", and llama.cpp needs a row of i64" +
               advice;
    }
    if (h.tensor("output.weight") == nullptr) {
        return std::string(" lists the tokens that it proposes (d2t) and has no output matrix for them") + advice;
    }
    const std::vector<int64_t> ids = numbers(h, d2t);
    const auto bad = std::find_if(ids.begin(), ids.end(), [n_vocab](int64_t id) { return id < 0 || id >= n_vocab; });
    return bad == ids.end() ? ""
                            : " proposes token " + std::to_string(*bad) + " (d2t), and its vocabulary has " +
                                  std::to_string(n_vocab) + advice;
}

} // namespace

std::string head_fault(const std::string & path, int64_t n_vocab) {
    const file_header h    = read_file_header(path);
    const auto *      name = h.value_as<std::string>("general.architecture");
    if (name == nullptr || (*name != "eagle3" && *name != "dflash")) {
        return "";
    }
    if (const header_tensor * d2t = h.tensor("d2t"); d2t != nullptr) {
        if (const std::string why = fault_of_proposed(h, *d2t, n_vocab); !why.empty()) {
            return path + why;
        }
    }
    if (const int64_t mask = number(h, "tokenizer.ggml.mask_token_id", 0); *name == "dflash" && mask >= n_vocab) {
        return path + " masks tokens with token " + std::to_string(mask) + ", which is outside its vocabulary" + advice;
    }
    const std::string of     = *name + ".";
    const int64_t     n_head = std::max<int64_t>(1, number(h, of + "attention.head_count", 1));
    const int64_t     n_each = number(h, of + "embedding_length", 0) / n_head;
    const int64_t     n_key  = number(h, of + "attention.key_length", n_each);
    if (n_key != number(h, of + "attention.value_length", n_each)) {
        return path + " has keys and values of different lengths, which llama.cpp does not compute in a head" + advice;
    }
    if (const int64_t n = number(h, of + "rope.dimension_count", n_key); n < 2 || n > n_key || n % 2 != 0) {
        return path + " turns " + std::to_string(n) + " numbers of each key (" + of +
               "rope.dimension_count), which has " + std::to_string(n_key) + advice;
    }
    if (const header_tensor * rows = h.tensor("output.weight");
        rows != nullptr && h.tensor("d2t") == nullptr && (rows->shape.size() != 2 || rows->shape[1] != n_vocab)) {
        return path + " has an output matrix of another number of rows than its vocabulary has tokens (" +
               std::to_string(n_vocab) + "), and no list of the tokens that it proposes (d2t)" + advice;
    }
    if (const header_tensor * rows = h.tensor("token_embd.weight");
        rows != nullptr && (rows->shape.size() != 2 || rows->shape[1] < n_vocab)) {
        return path + " has an embedding of fewer rows than its vocabulary has tokens (" + std::to_string(n_vocab) +
               ")" + advice;
    }
    return "";
}

} // namespace duo
