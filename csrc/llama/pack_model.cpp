#include <algorithm>
#include <cstring>
#include <memory>

#include "base/checksum.h"
#include "base/error.h"
#include "cpu/ggml_buffer.h"
#include "cpu/requantise.h"
#include "failed_check.h"
#include "file_header.h"
#include "file_weights.h"
#include "gguf_handle.h"
#include "model_parts.h"
#include "new_file.h"
#include "packed_file.h"
#include "packed_header.h"
#include "unpacked_file.h"
#include "weight_placement.h"

namespace duo {

namespace {

// A weight of the model, and what becomes of it.
struct source_weight {
    const header_tensor * in;
    cpu::matrix_shape     shape;
    cpu::convert_fn       convert; // empty: it keeps its type
    size_t                n_row;   // bytes, in the model's file
};

// What duo's kernels can take, whether they are faster on this machine or not.
std::vector<std::pair<packed_tensor, source_weight>> chosen(const std::string & model, const file_header & header,
                                                            const weight_packing & packing) {
    const file_weights weights = read_weights(model);
    const size_t       n_large = weights.all.size(); // routers keep their type, as in weight_placement
    auto               all     = weights.all;
    all.insert(all.end(), weights.routers.begin(), weights.routers.end());
    std::vector<std::pair<packed_tensor, source_weight>> found;
    for (size_t i = 0; i < all.size(); ++i) {
        const file_weight &         w      = all[i];
        const header_tensor * const in     = header.tensor(w.name);
        const ggml_type             stored = i < n_large ? kept_type(packing, w) : w.type;
        const auto                  shape  = cpu::shape_of(stored, w.n_columns, w.n_rows);
        if (in != nullptr && shape) {
            found.push_back(
                {{w.name, w.type, stored, w.n_columns, w.n_rows, w.n_matrices, 0,
                  shape->bytes() * uint64_t(w.n_matrices)},
                 {in, *shape, cpu::conversion(w.type, stored, w.n_columns), ggml_row_size(w.type, w.n_columns)}});
        }
    }
    return found;
}

// What the packed weights leave of a model that has one file.
packed_rest rest_of(const file_header & header, const std::vector<std::pair<packed_tensor, source_weight>> & weights) {
    const gguf_handle g(header.parts.front());
    packed_rest       rest;
    rest.n_source = header.n_file_bytes;
    rest.n_front  = gguf_get_data_offset(g.get());
    rest.n_bytes  = rest.n_source;
    for (const auto & [t, w] : weights) {
        rest.places.push_back(w.in->offset);
        rest.n_bytes -= source_bytes(t);
    }
    return rest;
}

// Writes what lies between the packed weights.
void write_rest(const packed_header & head, const file_map & source, new_file & file, std::vector<uint8_t> & bytes) {
    std::vector<std::pair<uint64_t, uint64_t>> packed; // begin, end
    for (size_t i = 0; i < head.tensors.size(); ++i) {
        packed.emplace_back(head.rest.places[i], head.rest.places[i] + source_bytes(head.tensors[i]));
    }
    std::sort(packed.begin(), packed.end());
    packed.emplace_back(head.rest.n_source, head.rest.n_source);
    bytes.clear();
    uint64_t at = 0;
    for (const auto & [begin, end] : packed) {
        bytes.insert(bytes.end(), source.data() + at, source.data() + begin);
        at = end;
    }
    file.seek(head.rest.offset);
    file.write(bytes.data(), bytes.size());
}

// Throws duo::error: what is read from the packed file is not the model's file.
void compare(const std::string & packed, const std::string & model, int n_threads,
             const std::function<bool(float)> & keep_going) {
    constexpr size_t     n_at_once = size_t(16) << 20;
    const unpacked_file  unpacked(packed);
    const file_map       source(model, true);
    std::vector<uint8_t> bytes(n_at_once);
    bool                 same = unpacked.size() == source.size();
    for (uint64_t at = 0; same && at < source.size(); at += n_at_once) {
        if (keep_going && !keep_going(float(double(at) / double(source.size())))) {
            throw error(error_kind::cancelled, "packing was stopped");
        }
        const size_t n = std::min(n_at_once, size_t(source.size() - at));
        same =
            unpacked.read(at, bytes.data(), n, n_threads) == n && std::memcmp(bytes.data(), source.data() + at, n) == 0;
        source.forget(at, n);
    }
    unpacked.packed().check(n_threads, {});
    if (!same || unpacked.lost() || source.lost()) {
        throw error(error_kind::bad_value, model +
                                               " could not be restored from its packed file, byte for byte, so the "
                                               "packed file was not kept; check the disk, or pack without --replace");
    }
}

} // namespace

uint64_t pack_model(const std::string & model, const std::string & out, const std::string & source,
                    const weight_packing & packing, bool whole, int n_threads,
                    const std::function<bool(float)> & keep_going) {
    const throwing_checks checks; // of libggml, which writes the header
    if (is_packed_file(model)) {
        throw error(error_kind::bad_value, model + " is packed already");
    }
    const file_header header = read_file_header(model);
    if (whole && header.parts.size() > 1) {
        throw error(error_kind::bad_value, model + " is split into " + std::to_string(header.parts.size()) +
                                               " files, and one packed file cannot take their place; join them first " +
                                               "(llama-gguf-split --merge), or pack without --replace");
    }
    if (whole && !packing.stored.empty()) {
        throw error(error_kind::bad_value, "weights that become " + packing.stored + " cannot take the place of " +
                                               model + "; pack without --replace");
    }
    auto weights = chosen(model, header, packing);
    if (weights.empty()) {
        throw error(error_kind::bad_value, model + " has no weights that duo's kernels take; there is nothing to pack");
    }
    packed_header head;
    head.source    = source;
    uint64_t n_all = 0;
    for (const auto & [t, w] : weights) {
        head.tensors.push_back(t);
        n_all += t.n_bytes;
    }
    head.rest = whole ? rest_of(header, weights) : packed_rest();
    head.sums.resize(pieces_of(head).size());
    std::vector<uint8_t> front = packed_header_bytes(head); // for its size, and the offsets
    const auto           parts = map_parts(header);
    new_file             file(out, "the packed weights");
    file.need(n_all + head.rest.n_bytes);
    const float          share = whole ? 0.5f : 1.0f; // the other half compares
    std::vector<uint8_t> packed;
    uint64_t             done     = 0;
    auto                 sum      = head.sums.begin();
    const auto           add_sums = [&] {
        for (size_t at = 0; at < packed.size(); at += n_piece) {
            *sum++ = checksum(packed.data() + at, std::min(packed.size() - at, size_t(n_piece)));
        }
    };
    for (size_t i = 0; i < weights.size(); ++i) {
        const auto & [t, w]   = weights[i];
        const file_map & part = *parts[w.in->part];
        file.seek(head.tensors[i].offset);
        packed.resize(w.shape.bytes());
        const size_t n_file = w.n_row * size_t(w.shape.n);
        for (int64_t m = 0; m < t.n_matrices; ++m) {
            if (keep_going && !keep_going(share * float(double(done) / double(n_all)))) {
                throw error(error_kind::cancelled, "packing was stopped");
            }
            const size_t from = w.in->offset + size_t(m) * n_file;
            cpu::pack_matrix(w.shape, part.data() + from, w.n_row, packed.data(), n_threads, w.convert);
            if (part.lost()) {
                throw error(error_kind::bad_value, header.parts[w.in->part] + " cannot be read; check its disk");
            }
            part.forget(from, n_file);
            file.write(packed.data(), packed.size());
            add_sums();
            done += packed.size();
        }
    }
    uint64_t end = head.tensors.back().offset + head.tensors.back().n_bytes;
    if (whole) {
        write_rest(head, *parts.front(), file, packed);
        add_sums();
        end = head.rest.offset + head.rest.n_bytes;
    }
    front = packed_header_bytes(head);
    file.seek(0);
    file.write(front.data(), front.size());
    const std::string & written = file.close(whole);
    if (whole) {
        compare(written, model, n_threads, [&keep_going, share](float compared) {
            return !keep_going || keep_going(share + (1.0f - share) * compared);
        });
    }
    if (keep_going && !keep_going(1.0f)) {
        throw error(error_kind::cancelled, "packing was stopped");
    }
    file.rename();
    return end;
}

void unpack_model(const std::string & packed, const std::string & out, int n_threads,
                  const std::function<bool(float)> & keep_going) {
    const shared_unpacked unpacked = open_unpacked(packed);
    if (unpacked == nullptr) {
        throw error(error_kind::bad_value, packed + " is no packed file; there is nothing to unpack");
    }
    unpacked->packed().check(n_threads, {});
    new_file file(out, "the model's weights");
    file.need(unpacked->size());
    std::vector<uint8_t> bytes(size_t(16) << 20);
    for (uint64_t at = 0; at < unpacked->size();) {
        if (keep_going && !keep_going(float(double(at) / double(unpacked->size())))) {
            throw error(error_kind::cancelled, "unpacking was stopped");
        }
        const size_t n = unpacked->read(at, bytes.data(), bytes.size(), n_threads);
        file.write(bytes.data(), n);
        at += n;
    }
    if (unpacked->lost()) {
        throw error(error_kind::bad_value, packed + " cannot be read; check its disk");
    }
    file.close();
    if (keep_going && !keep_going(1.0f)) {
        throw error(error_kind::cancelled, "unpacking was stopped");
    }
    file.rename();
}

} // namespace duo
