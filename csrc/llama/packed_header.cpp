#include "packed_header.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string_view>

#include "base/checksum.h"
#include "base/freed_by.h"
#include "cpu/ggml_buffer.h"
#include "failed_check.h"

#include <gguf.h>

namespace duo {

namespace {

constexpr const char * arch        = "duo-packed";
constexpr const char * key_sum     = "duo.packed.header_sum"; // the first key, so its value has a fixed place
constexpr const char * key_version = "duo.packed.version";
constexpr const char * key_source  = "duo.packed.source";
constexpr const char * key_release = "duo.packed.release"; // of duo
constexpr const char * key_facts   = "duo.packed.tensors"; // of each: type, stored, columns, rows, matrices
constexpr const char * key_sums    = "duo.packed.sums";
constexpr const char * key_rest    = "duo.packed.rest";   // of the model's file: bytes, those of its header, sum
constexpr const char * key_places  = "duo.packed.places"; // of the tensors in the model's file
constexpr const char * name_rest   = "duo.rest";          // the last tensor
constexpr size_t       n_facts     = 5;
constexpr size_t       n_fixed     = 24;                 // bytes before the first key: magic, version, two counts
constexpr const char * key_space   = "duo.packed.space"; // makes the header whole pages
constexpr size_t       n_page      = 4096;
constexpr uint64_t     n_line      = 64;               // kernels expect whole cache lines
constexpr size_t       n_front_max = size_t(64) << 20; // bytes that are searched for a key of a damaged header

size_t sum_place() {
    return n_fixed + 8 + std::strlen(key_sum) + 4; // a key's length, the key, the type of its value
}

// Of a header whose own sum counts as 0.
uint64_t sum_of(const uint8_t * bytes, size_t n) {
    const size_t at = sum_place();
    return checksum(bytes + at + 8, n - at - 8, checksum(bytes, at));
}

template <class T> std::vector<T> array_of(const gguf_context * g, const char * key, gguf_type type) {
    const int64_t i = gguf_find_key(g, key);
    if (i < 0 || gguf_get_kv_type(g, i) != GGUF_TYPE_ARRAY || gguf_get_arr_type(g, i) != type) {
        return {};
    }
    const auto * data = static_cast<const T *>(gguf_get_arr_data(g, i));
    return {data, data + gguf_get_arr_n(g, i)};
}

bool has(const gguf_context * g, const char * key, gguf_type type) {
    const int64_t i = gguf_find_key(g, key);
    return i >= 0 && gguf_get_kv_type(g, i) == type;
}

std::string text_of_key(const gguf_context * g, const char * key) {
    return has(g, key, GGUF_TYPE_STRING) ? gguf_get_val_str(g, gguf_find_key(g, key)) : "";
}

// Whether a tensor of type, stored type, columns, rows and matrices can be in a file of so many bytes. Then no product
// of them overflows. Every weight has at least one bit.
bool is_possible(const int64_t * f, size_t n_file, bool whole) {
    const int64_t n_most = int64_t(n_file) * 8;
    return f[0] >= 0 && f[0] < GGML_TYPE_COUNT && f[1] >= 0 && f[1] < GGML_TYPE_COUNT && (!whole || f[0] == f[1]) &&
           f[2] >= 1 && f[2] <= n_most && f[3] >= 1 && f[3] <= n_most / f[2] && f[4] >= 1 &&
           f[4] <= n_most / f[2] / f[3];
}

// Whether the packed tensors and the rest are the model's file: every byte once.
bool is_complete(const packed_header & h) {
    std::vector<std::pair<uint64_t, uint64_t>> spans; // place, bytes
    for (size_t i = 0; i < h.tensors.size(); ++i) {
        spans.emplace_back(h.rest.places[i], source_bytes(h.tensors[i]));
    }
    std::sort(spans.begin(), spans.end());
    uint64_t end = h.rest.n_front, n_packed = 0;
    for (const auto & [place, n] : spans) {
        if (place < end || place > h.rest.n_source || n > h.rest.n_source - place) {
            return false;
        }
        end = place + n;
        n_packed += n;
    }
    return h.rest.n_front > 0 && h.rest.n_front <= h.rest.n_bytes && h.rest.n_source - n_packed == h.rest.n_bytes;
}

} // namespace

uint64_t source_bytes(const packed_tensor & t) {
    return ggml_row_size(t.type, t.n_columns) * uint64_t(t.n_rows * t.n_matrices);
}

std::vector<summed_piece> pieces_of(const packed_header & h) {
    std::vector<summed_piece> pieces;
    const auto                add = [&pieces](uint64_t begin, uint64_t n) {
        for (uint64_t at = 0; at < n; at += n_piece) {
            pieces.push_back({begin + at, std::min(n_piece, n - at)});
        }
    };
    for (const packed_tensor & t : h.tensors) {
        const uint64_t n_matrix = t.n_bytes / uint64_t(t.n_matrices);
        for (uint64_t begin = 0; begin < t.n_bytes; begin += n_matrix) {
            add(t.offset + begin, n_matrix);
        }
    }
    add(h.rest.offset, h.rest.n_bytes);
    return pieces;
}

bool is_packed_file(const std::string & path) {
    constexpr std::string_view key = key_sum;
    std::array<char, 64>       front{};
    if (std::error_code ec; !std::filesystem::is_regular_file(path, ec)) { // opening a pipe would block
        return false;
    }
    std::ifstream file(path, std::ios::binary);
    file.read(front.data(), front.size());
    return file && std::memcmp(front.data(), "GGUF", 4) == 0 &&
           std::string_view(front.data() + n_fixed + 8, key.size()) == key;
}

bool may_be_whole(const std::string & path) {
    constexpr std::string_view key = key_rest;
    std::error_code            ec;
    if (std::filesystem::file_size(path, ec) == 0 && !ec) {
        return false;
    }
    const file_map   file(path);
    std::string_view front(reinterpret_cast<const char *>(file.data()), std::min(file.size(), n_front_max));
    return front.find(key) != std::string_view::npos || file.lost();
}

uint64_t add_to_sum(uint64_t sum, const uint8_t * bytes, size_t n) {
    return checksum(bytes, n, sum);
}

packed_header read_packed_header(const std::string & path, const file_map & file) {
    packed_header         h;
    const throwing_checks checks;
    const auto            refused = [&h](const char * why) {
        h.fault = why;
        return h;
    };
    const std::unique_ptr<gguf_context, freed_by<gguf_free>> owned(
        gguf_init_from_file(path.c_str(), {.no_alloc = true, .ctx = nullptr}));
    const gguf_context * const g = owned.get();
    if (g == nullptr || !has(g, key_version, GGUF_TYPE_UINT32) || !has(g, key_source, GGUF_TYPE_STRING) ||
        !has(g, key_sum, GGUF_TYPE_UINT64)) {
        return refused("are damaged, or of another program");
    }
    const bool is_whole = gguf_find_key(g, key_rest) >= 0;
    h.origin            = {text_of_key(g, key_source), text_of_key(g, key_release)};
    if (gguf_get_val_u32(g, gguf_find_key(g, key_version)) != (is_whole ? whole_version : packed_version)) {
        h.is_other_version = true;
        return refused("have the form of another version of duo");
    }
    const size_t n_header = gguf_get_data_offset(g);
    const auto   facts    = array_of<int64_t>(g, key_facts, GGUF_TYPE_INT64);
    const auto   n_all    = size_t(gguf_get_n_tensors(g));
    const auto   whole    = array_of<uint64_t>(g, key_rest, GGUF_TYPE_UINT64); // as key_rest says
    const size_t n        = n_all - (is_whole ? 1 : 0);
    if (n_header > file.size() || n_header < sum_place() + 8 || facts.size() != n * n_facts ||
        sum_of(file.data(), n_header) != gguf_get_val_u64(g, gguf_find_key(g, key_sum))) {
        return refused("are damaged");
    }
    h.sums = array_of<uint64_t>(g, key_sums, GGUF_TYPE_UINT64);
    for (size_t i = 0; i < n; ++i) {
        const int64_t * const f      = facts.data() + i * n_facts;
        const uint64_t        offset = n_header + gguf_get_tensor_offset(g, int64_t(i));
        const uint64_t        size   = gguf_get_tensor_size(g, int64_t(i));
        if (offset > file.size() || size > file.size() - offset) {
            return refused("are incomplete");
        }
        const auto shape =
            is_possible(f, file.size(), is_whole) ? cpu::shape_of(ggml_type(f[1]), f[2], f[3]) : std::nullopt;
        if (!shape || size % uint64_t(f[4]) != 0 || size / uint64_t(f[4]) != shape->bytes() || offset % n_line != 0) {
            return refused("have another form than duo's kernels read");
        }
        h.tensors.push_back(
            {gguf_get_tensor_name(g, int64_t(i)), ggml_type(f[0]), ggml_type(f[1]), f[2], f[3], f[4], offset, size});
    }
    if (is_whole) {
        h.rest.places  = array_of<uint64_t>(g, key_places, GGUF_TYPE_UINT64);
        h.rest.offset  = n_header + gguf_get_tensor_offset(g, int64_t(n));
        h.rest.n_bytes = gguf_get_tensor_size(g, int64_t(n));
        if (h.rest.offset > file.size() || h.rest.n_bytes > file.size() - h.rest.offset) {
            return refused("are incomplete");
        }
        if (whole.size() != 3 || h.rest.places.size() != n) {
            return refused("are damaged");
        }
        h.rest.n_source = whole[0];
        h.rest.n_front  = whole[1];
        h.rest.sum      = whole[2];
        if (!is_complete(h)) {
            return refused("are damaged");
        }
    }
    return pieces_of(h).size() == h.sums.size() ? h : refused("are damaged");
}

std::vector<uint8_t> packed_header_bytes(packed_header & h) {
    const std::unique_ptr<gguf_context, freed_by<gguf_free>> g(gguf_init_empty());
    const std::unique_ptr<ggml_context, freed_by<ggml_free>> shapes(ggml_init(
        {.mem_size = ggml_tensor_overhead() * (h.tensors.size() + 2), .mem_buffer = nullptr, .no_alloc = true}));
    gguf_set_val_u64(g.get(), key_sum, 0);
    gguf_set_val_str(g.get(), "general.architecture", arch);
    gguf_set_val_u32(g.get(), key_version, h.rest.n_source != 0 ? whole_version : packed_version);
    gguf_set_val_str(g.get(), key_source, h.origin.source.c_str());
    gguf_set_val_str(g.get(), key_release, h.origin.release.c_str());
    std::vector<int64_t> facts;
    const auto           add = [&](const std::string & name, uint64_t n_bytes) {
        ggml_tensor * const shape = ggml_new_tensor_1d(shapes.get(), GGML_TYPE_I8, int64_t(n_bytes));
        ggml_set_name(shape, name.c_str());
        gguf_add_tensor(g.get(), shape);
    };
    for (const packed_tensor & t : h.tensors) {
        add(t.name, t.n_bytes);
        facts.insert(facts.end(), {t.type, t.stored, t.n_columns, t.n_rows, t.n_matrices});
    }
    gguf_set_arr_data(g.get(), key_facts, GGUF_TYPE_INT64, facts.data(), facts.size());
    gguf_set_arr_data(g.get(), key_sums, GGUF_TYPE_UINT64, h.sums.data(), h.sums.size());
    if (h.rest.n_source != 0) {
        const std::array<uint64_t, 3> whole{h.rest.n_source, h.rest.n_front, h.rest.sum};
        gguf_set_arr_data(g.get(), key_rest, GGUF_TYPE_UINT64, whole.data(), whole.size());
        gguf_set_arr_data(g.get(), key_places, GGUF_TYPE_UINT64, h.rest.places.data(), h.rest.places.size());
        add(name_rest, h.rest.n_bytes);
    }
    gguf_set_val_str(g.get(), key_space, "");
    const std::string space(n_page - gguf_get_meta_size(g.get()) % n_page, ' '); // both are whole alignments
    gguf_set_val_str(g.get(), key_space, space.c_str());
    std::vector<uint8_t> bytes(gguf_get_meta_size(g.get()));
    gguf_get_meta_data(g.get(), bytes.data());
    const uint64_t sum = sum_of(bytes.data(), bytes.size());
    std::memcpy(bytes.data() + sum_place(), &sum, sizeof sum);
    for (size_t i = 0; i < h.tensors.size(); ++i) {
        h.tensors[i].offset = bytes.size() + gguf_get_tensor_offset(g.get(), int64_t(i));
    }
    if (h.rest.n_source != 0) {
        h.rest.offset = bytes.size() + gguf_get_tensor_offset(g.get(), int64_t(h.tensors.size()));
    }
    return bytes;
}

} // namespace duo
