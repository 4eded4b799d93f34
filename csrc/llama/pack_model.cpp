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

using pack_progress = std::function<bool(float)>; // gets the share that is done; false: stop

// One step of a task, which takes the share [from, to) of its time.
pack_progress step_of(const pack_progress & all, float from, float to) {
    return [&all, from, to](float share) { return !all || all(from + (to - from) * share); };
}

void stop_unless(bool go_on, const char * what) {
    if (!go_on) {
        throw error(error_kind::cancelled, std::string(what) + " was stopped");
    }
}

error not_read_back(const std::string & out) {
    return error(error_kind::bad_value,
                 out + " was not read back as it was written, so it was not kept; check its disk");
}

// Writes what lies between the packed weights. sum: of each piece, in turn.
void write_rest(const packed_header & head, const file_map & source, new_file & file,
                std::vector<uint64_t>::iterator sum, const pack_progress & keep_going) {
    std::vector<std::pair<uint64_t, uint64_t>> packed; // begin, end
    for (size_t i = 0; i < head.tensors.size(); ++i) {
        packed.emplace_back(head.rest.places[i], head.rest.places[i] + source_bytes(head.tensors[i]));
    }
    std::sort(packed.begin(), packed.end());
    packed.emplace_back(head.rest.n_source, head.rest.n_source);
    std::vector<uint8_t> piece;
    piece.reserve(n_piece);
    const auto finish = [&] {
        file.write(piece.data(), piece.size());
        *sum++ = checksum(piece.data(), piece.size());
        piece.clear();
    };
    file.seek(head.rest.offset);
    uint64_t at = 0;
    for (const auto & [begin, end] : packed) {
        while (at < begin) {
            const auto n = size_t(std::min<uint64_t>(begin - at, n_piece - piece.size()));
            piece.insert(piece.end(), source.data() + at, source.data() + at + n);
            source.forget(at, n);
            at += n;
            if (piece.size() == n_piece) {
                finish();
                stop_unless(keep_going(float(double(at) / double(head.rest.n_source))), "packing");
            }
        }
        at = end;
    }
    if (!piece.empty()) {
        finish();
    }
}

// Returns the sum of the model's file. Throws duo::error: what is read from the packed file `part`, which will be
// `out`, is not the model's file.
uint64_t compare(const std::string & part, const std::string & out, const std::string & model, int n_threads,
                 const pack_progress & keep_going) {
    const unpacked_file  unpacked(part);
    const file_map       source(model, true);
    std::vector<uint8_t> bytes(n_sum_step);
    uint64_t             sum  = 0;
    bool                 same = unpacked.size() == source.size();
    for (uint64_t at = 0; same && at < source.size(); at += n_sum_step) {
        stop_unless(keep_going(0.7f * float(double(at) / double(source.size()))), "packing");
        const size_t n = std::min(n_sum_step, size_t(source.size() - at));
        same =
            unpacked.read(at, bytes.data(), n, n_threads) == n && std::memcmp(bytes.data(), source.data() + at, n) == 0;
        sum = add_to_sum(sum, bytes.data(), n);
        source.forget(at, n);
    }
    if (source.lost()) {
        throw error(error_kind::bad_value, model + " cannot be read; check its disk");
    }
    if (same && !unpacked.lost()) {
        try {
            unpacked.packed().check(n_threads, step_of(keep_going, 0.7f, 1.0f));
            return sum;
        } catch (const error & e) {
            if (e.kind() == error_kind::cancelled) {
                throw;
            }
        }
    }
    throw error(error_kind::bad_value, "what was read back from " + out + " is not " + model +
                                           ", so it was not kept; the model's file has changed, or a disk fails");
}

// Throws duo::error: the packed file cannot take the place of the model's.
void check_whole(const std::string & model, const file_header & header, const weight_packing & packing) {
    const auto refused = [](const std::string & why) {
        return error(error_kind::bad_value, why + "; pack without --replace");
    };
    if (!has_streams) {
        throw refused("a packed file takes the place of a model's file on Linux only");
    }
    if (header.parts.size() > 1) {
        throw refused(model + " is split into " + std::to_string(header.parts.size()) +
                      " files, which one packed file can replace when they are joined (llama-gguf-split --merge)");
    }
    if (!packing.stored.empty()) {
        throw refused("weights that become " + packing.stored + " cannot take the place of " + model);
    }
}

} // namespace

uint64_t pack_model(const std::string & model, const std::string & out, const packed_origin & origin,
                    const weight_packing & packing, bool whole, int n_threads, const pack_progress & keep_going) {
    const throwing_checks checks; // of libggml, which writes the header
    if (is_packed_file(model)) {
        throw error(error_kind::bad_value, model + " is packed already");
    }
    const file_header header = read_file_header(model);
    if (whole) {
        check_whole(model, header, packing);
    }
    auto weights = chosen(model, header, packing);
    if (weights.empty()) {
        throw error(error_kind::bad_value, model + " has no weights for duo's kernels; there is nothing to pack");
    }
    packed_header head;
    head.origin    = origin;
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
    file.take_permissions(model);
    file.need(n_all + head.rest.n_bytes);
    const pack_progress  packs  = step_of(keep_going, 0.0f, whole ? 0.4f : 1.0f); // the rest of the time compares
    constexpr size_t     n_once = size_t(32) << 20; // bytes of small matrices, so that each thread has enough to do
    std::vector<uint8_t> packed;
    uint64_t             done = 0;
    auto                 sum  = head.sums.begin();
    for (size_t i = 0; i < weights.size(); ++i) {
        const auto & [t, w]   = weights[i];
        const file_map & part = *parts[w.in->part];
        file.seek(head.tensors[i].offset);
        const size_t n_matrix = w.shape.bytes();
        for (int64_t m = 0, n = 0; m < t.n_matrices; m += n) {
            stop_unless(packs(float(double(done) / double(n_all))), "packing");
            n                 = std::clamp(int64_t(n_once / n_matrix), int64_t(1), t.n_matrices - m);
            const size_t from = w.in->offset + w.n_row * size_t(m * w.shape.n);
            packed.resize(size_t(n) * n_matrix);
            cpu::pack_matrices(w.shape, n, part.data() + from, w.n_row, packed.data(), n_threads, w.convert);
            if (part.lost()) {
                throw error(error_kind::bad_value, header.parts[w.in->part] + " cannot be read; check its disk");
            }
            part.forget(from, w.n_row * size_t(n * w.shape.n));
            file.write(packed.data(), packed.size());
            for (size_t at = 0, n_sum = 0; at < packed.size(); at += n_sum) {
                n_sum  = std::min(size_t(n_piece), n_matrix - at % n_matrix);
                *sum++ = checksum(packed.data() + at, n_sum);
            }
            done += packed.size();
        }
    }
    uint64_t end = head.tensors.back().offset + head.tensors.back().n_bytes;
    if (whole) {
        write_rest(head, *parts.front(), file, sum, step_of(keep_going, 0.4f, 0.5f));
        end = head.rest.offset + head.rest.n_bytes;
    }
    const auto write_header = [&] {
        front = packed_header_bytes(head);
        file.seek(0);
        file.write(front.data(), front.size());
        return file.sync(whole);
    };
    const std::string part = write_header();
    if (whole) {
        head.rest.sum = compare(part, out, model, n_threads, step_of(keep_going, 0.5f, 1.0f));
        write_header();
        if (unpacked_file(part).packed().header().rest.sum != head.rest.sum) {
            throw not_read_back(out);
        }
    }
    stop_unless(!keep_going || keep_going(1.0f), "packing");
    file.rename(!whole);
    return end;
}

void unpack_model(const std::string & packed, const std::string & out, int n_threads,
                  const pack_progress & keep_going) {
    const shared_unpacked unpacked = open_unpacked(packed);
    if (unpacked == nullptr) {
        throw error(error_kind::bad_value, packed + " is no packed file; there is nothing to unpack");
    }
    const uint64_t        n_all = unpacked->size();
    const packed_header & head  = unpacked->packed().header();
    unpacked->packed().check(n_threads, step_of(keep_going, 0.0f, 0.3f));
    new_file file(out, "the model's weights");
    file.take_permissions(packed);
    file.need(n_all);
    std::vector<uint8_t> bytes(n_sum_step);
    uint64_t             sum = 0;
    for (uint64_t at = 0; at < n_all;) {
        stop_unless(step_of(keep_going, 0.3f, 0.8f)(float(double(at) / double(n_all))), "unpacking");
        const size_t n = unpacked->read(at, bytes.data(), bytes.size(), n_threads);
        sum            = add_to_sum(sum, bytes.data(), n);
        file.write(bytes.data(), n);
        at += n;
    }
    if (unpacked->lost()) {
        throw error(error_kind::bad_value, packed + " cannot be read; check its disk");
    }
    if (sum != head.rest.sum) {
        throw error(error_kind::bad_value, "what was unpacked from " + packed + " is not the model's file; keep the " +
                                               "packed file, and unpack it with duo " + head.origin.release);
    }
    const file_map written(file.sync(true), true);
    sum = 0;
    for (uint64_t at = 0; at < written.size(); at += n_sum_step) {
        stop_unless(step_of(keep_going, 0.8f, 1.0f)(float(double(at) / double(n_all))), "unpacking");
        const size_t n = std::min(n_sum_step, size_t(written.size() - at));
        sum            = add_to_sum(sum, written.data() + at, n);
        written.forget(at, n);
    }
    if (written.lost() || sum != head.rest.sum) {
        throw not_read_back(out);
    }
    stop_unless(!keep_going || keep_going(1.0f), "unpacking");
    file.rename(false);
}

} // namespace duo
