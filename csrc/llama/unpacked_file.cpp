#include "unpacked_file.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <new>
#include <utility>

#include "base/error.h"
#include "cpu/ggml_buffer.h"
#include "cpu/repack.h"
#include "cpu/team.h"
#include "packed_header.h"

namespace duo {

namespace {

constexpr size_t n_alone = size_t(1) << 16; // bytes that are not worth a team

#if defined(__linux__)

struct reading {
    shared_unpacked file;
    uint64_t        at = 0;
};

ssize_t read_some(void * x, char * to, size_t n) {
    auto & r = *static_cast<reading *>(x);
    try {
        const size_t done = r.file->read(r.at, reinterpret_cast<uint8_t *>(to), n, cpu::threads_here());
        r.at += done;
        if (!r.file->lost()) {
            return ssize_t(done);
        }
        errno = EIO;
    } catch (const std::bad_alloc &) {
        errno = ENOMEM;
    } catch (...) { // no C library passes it on
        errno = EIO;
    }
    return -1;
}

int seek_to(void * x, off64_t * offset, int whence) {
    auto &        r  = *static_cast<reading *>(x);
    const int64_t to = *offset + (whence == SEEK_SET ? 0 : int64_t(whence == SEEK_CUR ? r.at : r.file->size()));
    if (to < 0) {
        errno = EINVAL;
        return -1;
    }
    r.at    = uint64_t(to);
    *offset = to;
    return 0;
}

int end_reading(void * x) {
    const std::unique_ptr<reading> last(static_cast<reading *>(x));
    return 0;
}

#endif

} // namespace

unpacked_file::unpacked_file(const std::string & path) : packed_(path, true), n_bytes_(packed_.header().rest.n_source) {
    const packed_header & h = packed_.header();
    if (n_bytes_ == 0) {
        throw error(error_kind::unknown_model, path + " has only the packed weights of a model; give the model's file, "
                                                      "which duo reads together with it");
    }
    std::vector<std::pair<uint64_t, const packed_tensor *>> places;
    for (size_t i = 0; i < h.tensors.size(); ++i) {
        places.emplace_back(h.rest.places[i], &h.tensors[i]);
    }
    std::sort(places.begin(), places.end());
    uint64_t   at = 0, rest = h.rest.offset;
    const auto add_rest = [&](uint64_t end) {
        spans_.push_back({at, end - at, rest, nullptr});
        rest += end - at;
        at = end;
    };
    for (const auto & [place, t] : places) {
        add_rest(place);
        spans_.push_back({at, source_bytes(*t), t->offset, t});
        at += source_bytes(*t);
    }
    add_rest(n_bytes_);
}

size_t unpacked_file::read(uint64_t from, uint8_t * to, size_t n, int n_threads) const {
    n                  = size_t(std::min<uint64_t>(n, n_bytes_ - std::min(from, n_bytes_)));
    const uint64_t end = from + n;
    auto           s   = std::upper_bound(spans_.begin(), spans_.end(), from,
                                          [](uint64_t x, const span & y) { return x < y.begin + y.n_bytes; });
    for (uint64_t at = from; at < end; ++s) {
        const auto     n_here = size_t(std::min(end, s->begin + s->n_bytes) - at);
        const uint64_t within = at - s->begin;
        if (s->packed == nullptr) {
            std::memcpy(to, packed_.bytes().data() + s->offset + within, n_here);
        } else {
            unpack(*s, within, to, n_here, n_here > n_alone ? n_threads : 1);
        }
        at += n_here;
        to += n_here;
    }
    return n;
}

// All memory is allocated first: an exception must not leave a thread of the team.
void unpacked_file::unpack(const span & s, uint64_t from, uint8_t * to, size_t n, int n_threads) const {
    const packed_tensor & t     = *s.packed;
    const auto            shape = cpu::shape_of(t.type, t.n_columns, t.n_rows).value(); // the header was checked
    const size_t          n_row = cpu::file_row(shape);
    const auto            row1  = int64_t((from + n + n_row - 1) / n_row);
    const auto            team  = size_t(std::max(1, n_threads));
    std::vector<uint8_t>  rows(team * n_row); // for those that are not wanted whole
    std::atomic<size_t>   member = 0;
    std::atomic<int64_t>  next   = int64_t(from / n_row);
    cpu::on_team(int(team), [&] {
        uint8_t * const own = rows.data() + member++ % team * n_row;
        for (int64_t row0 = next.fetch_add(cpu::n_lanes); row0 < row1; row0 = next.fetch_add(cpu::n_lanes)) {
            for (int64_t row = row0; row < std::min(row0 + cpu::n_lanes, row1); ++row) {
                const uint8_t * matrix = packed_.bytes().data() + s.offset + size_t(row / t.n_rows) * shape.bytes();
                const uint64_t  begin  = uint64_t(row) * n_row;
                if (begin >= from && begin + n_row <= from + n) {
                    cpu::unpack_row(shape, matrix, row % t.n_rows, to + (begin - from));
                    continue;
                }
                cpu::unpack_row(shape, matrix, row % t.n_rows, own);
                const uint64_t first = std::max(begin, from), last = std::min(begin + n_row, from + n);
                std::memcpy(to + (first - from), own + (first - begin), size_t(last - first));
            }
        }
    });
}

shared_unpacked open_unpacked(const std::string & path) {
    return is_packed_file(path) ? std::make_shared<const unpacked_file>(path) : nullptr;
}

size_t read_bytes(const std::string & path, uint64_t from, uint8_t * to, size_t n) {
    if (const shared_unpacked unpacked = open_unpacked(path)) {
        const size_t done = unpacked->read(from, to, n, 1);
        return unpacked->lost() ? 0 : done;
    }
    std::ifstream file(path, std::ios::binary);
    file.seekg(std::streamoff(from));
    file.read(reinterpret_cast<char *>(to), std::streamsize(n));
    return size_t(file.gcount());
}

std::unique_ptr<std::FILE, freed_by<std::fclose>> open_stream([[maybe_unused]] shared_unpacked file) {
    std::FILE * stream = nullptr;
#if defined(__linux__)
    auto r = std::make_unique<reading>(reading{std::move(file)});
    stream = fopencookie(r.get(), "rb", {.read = read_some, .write = nullptr, .seek = seek_to, .close = end_reading});
    if (stream != nullptr) {
        static_cast<void>(r.release()); // the stream's
    }
#endif
    if (stream == nullptr) {
        throw error(error_kind::bad_value, "a packed file takes the place of a model's file on Linux only; make the "
                                           "model's file again there (duo pack --unpack)");
    }
    return std::unique_ptr<std::FILE, freed_by<std::fclose>>(stream);
}

llama_model * load_model(const std::string & path, const shared_unpacked & file, llama_model_params params) {
    if (file == nullptr) {
        return llama_model_load_from_file(path.c_str(), params);
    }
    params.load_mode  = LLAMA_LOAD_MODE_NONE; // a stream cannot be mapped
    params.lazy_mode  = LLAMA_LAZY_MODE_OFF;
    const auto stream = open_stream(file);
    return llama_model_load_from_file_ptr(stream.get(), params);
}

} // namespace duo
