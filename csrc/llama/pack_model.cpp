#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>

#if defined(__unix__) || defined(__APPLE__)
#include <unistd.h>
#endif

#include "base/checksum.h"
#include "base/error.h"
#include "base/freed_by.h"
#include "cpu/ggml_buffer.h"
#include "cpu/requantise.h"
#include "failed_check.h"
#include "file_header.h"
#include "file_weights.h"
#include "model_parts.h"
#include "packed_file.h"
#include "packed_header.h"
#include "weight_placement.h"

namespace duo {

namespace {

namespace fs = std::filesystem;

// Written beside its final name, and renamed when it is complete and on the disk.
class new_file {
  public:
    explicit new_file(const std::string & path)
        : path_(path), part_(path + "." + std::to_string(std::random_device()()) + ".part") {
        file_.reset(std::fopen(part_.c_str(), "wbx"));
        require(file_ != nullptr);
    }
    ~new_file() {
        file_.reset();
        if (!done_) {
            std::error_code ec;
            fs::remove(part_, ec);
        }
    }
    new_file(const new_file &)             = delete;
    new_file & operator=(const new_file &) = delete;

    void write(const void * data, size_t n) { require(std::fwrite(data, 1, n, file_.get()) == n); }

    void seek(uint64_t at) {
        require(std::fflush(file_.get()) == 0 && std::fseek(file_.get(), long(at), SEEK_SET) == 0);
    }

    void finish() {
        require(std::fflush(file_.get()) == 0);
#if defined(__unix__) || defined(__APPLE__)
        require(fsync(fileno(file_.get())) == 0); // or a power failure leaves zeros where weights should be
#endif
        require(std::fclose(file_.release()) == 0);
        std::error_code ec;
        fs::rename(part_, path_, ec);
        if (ec) {
            fail(ec.message());
        }
        done_ = true;
    }

  private:
    void require(bool done) const {
        if (!done) {
            fail(std::strerror(errno));
        }
    }
    [[noreturn]] void fail(const std::string & why) const {
        throw error(error_kind::does_not_fit, "the packed weights cannot be written to " + path_ + ": " + why +
                                                  "; free disk space or name another file (-o)");
    }

    std::string                                       path_, part_;
    std::unique_ptr<std::FILE, freed_by<std::fclose>> file_;
    bool                                              done_ = false;
};

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

} // namespace

uint64_t pack_model(const std::string & model, const std::string & out, const std::string & source,
                    const weight_packing & packing, int n_threads, const std::function<bool(float)> & keep_going) {
    const throwing_checks checks; // of libggml, which writes the header
    const file_header     header  = read_file_header(model);
    auto                  weights = chosen(model, header, packing);
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
    std::error_code ec;
    const fs::path  folder = fs::absolute(out, ec).parent_path();
    if (const auto space = fs::space(folder, ec); !ec && space.available < n_all) {
        throw error(error_kind::does_not_fit, "the packed weights need " + std::to_string(n_all >> 20) + " MiB, and " +
                                                  folder.string() + " has " + std::to_string(space.available >> 20) +
                                                  " MiB free; free disk space or name another file (-o)");
    }
    head.sums.resize(pieces_of(head.tensors).size());
    std::vector<uint8_t> front = packed_header_bytes(head); // for its size, and the offsets
    const auto           parts = map_parts(header);
    new_file             file(out);
    std::vector<uint8_t> packed;
    uint64_t             done = 0;
    auto                 sum  = head.sums.begin();
    for (size_t i = 0; i < weights.size(); ++i) {
        const auto & [t, w]   = weights[i];
        const file_map & part = *parts[w.in->part];
        file.seek(head.tensors[i].offset);
        packed.resize(w.shape.bytes());
        const size_t n_file = w.n_row * size_t(w.shape.n);
        for (int64_t m = 0; m < t.n_matrices; ++m) {
            if (keep_going && !keep_going(float(double(done) / double(n_all)))) {
                throw error(error_kind::cancelled, "packing was stopped");
            }
            const size_t from = w.in->offset + size_t(m) * n_file;
            cpu::pack_matrix(w.shape, part.data() + from, w.n_row, packed.data(), n_threads, w.convert);
            if (part.lost()) {
                throw error(error_kind::bad_value, header.parts[w.in->part] + " cannot be read; check its disk");
            }
            part.forget(from, n_file);
            file.write(packed.data(), packed.size());
            for (size_t at = 0; at < packed.size(); at += n_piece) {
                *sum++ = checksum(packed.data() + at, std::min(packed.size() - at, size_t(n_piece)));
            }
            done += packed.size();
        }
    }
    const uint64_t end = head.tensors.back().offset + head.tensors.back().n_bytes;
    front              = packed_header_bytes(head);
    file.seek(0);
    file.write(front.data(), front.size());
    file.finish();
    if (keep_going) {
        keep_going(1.0f);
    }
    return end;
}

} // namespace duo
