#include "partial_file.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/file_map.h"
#include "file_header.h"
#include "gguf_handle.h"

#if defined(__linux__)
#include <sys/types.h>
#endif

namespace duo {

namespace {

constexpr uint64_t n_lazy = uint64_t(4) << 30; // libllama may map a tensor of this size (llama_lazy_mode)

// A tensor, or the header, in the file that libllama sees. Between pieces there are zeros.
struct piece {
    uint64_t         begin, end;
    std::string      name; // empty: the header
    const uint8_t *  data;
    const file_map * part; // where its data is; nullptr: in memory
};

// The header of one file with the tensors of all parts, which come in the order of `tensors`.
std::vector<uint8_t> joined_header(const std::vector<std::string> & parts, std::vector<header_tensor> & tensors) {
    const std::unique_ptr<gguf_context, parsed_header::closer> joined(gguf_init_empty());
    tensors.clear();
    for (size_t i = 0; i < parts.size(); ++i) {
        const gguf_handle g(parts[i]);
        if (i == 0) {
            gguf_set_kv(joined.get(), g.get());
        }
        for (ggml_tensor * t = ggml_get_first_tensor(g.tensors()); t != nullptr;
             t               = ggml_get_next_tensor(g.tensors(), t)) {
            gguf_add_tensor(joined.get(), t);
            const int64_t id = gguf_find_tensor(g.get(), t->name);
            tensors.push_back({t->name,
                               "",
                               ggml_nbytes(t),
                               {},
                               i,
                               gguf_get_data_offset(g.get()) + gguf_get_tensor_offset(g.get(), id)});
        }
    }
    for (const char * key : {"split.no", "split.count", "split.tensors.count", "general.alignment"}) {
        gguf_remove_key(joined.get(), key);
    }
    std::vector<uint8_t> bytes(gguf_get_meta_size(joined.get()));
    gguf_get_meta_data(joined.get(), bytes.data());
    return bytes;
}

} // namespace

// What the stream's functions work on.
class file_reader {
  public:
    file_reader(const std::string & path, const cpu::weight_loading & weights) : weights_(weights) {
        file_header facts = read_file_header(path);
        for (const std::string & part : facts.parts) {
            maps_.push_back(std::make_unique<const file_map>(part, true));
        }
        const bool joined = maps_.size() > 1;
        uint64_t   at     = 0;
        if (joined) {
            header_ = joined_header(facts.parts, facts.tensors);
            at      = header_.size();
            pieces_.push_back({0, at, "", header_.data(), nullptr});
        }
        for (const header_tensor & t : facts.tensors) {
            if (t.n_bytes == 0) {
                continue;
            }
            const file_map & part  = *maps_[t.part];
            const uint64_t   begin = joined ? at : t.offset;
            pieces_.push_back({begin, begin + t.n_bytes, t.name, part.data() + t.offset, &part});
            at = GGML_PAD(begin + t.n_bytes, GGUF_DEFAULT_ALIGNMENT);
        }
        std::sort(pieces_.begin(), pieces_.end(), [](const auto & a, const auto & b) { return a.begin < b.begin; });
        if (!joined && !pieces_.empty()) {
            pieces_.insert(pieces_.begin(), {0, pieces_.front().begin, "", maps_.front()->data(), nullptr});
        }
        size_ = pieces_.empty() ? 0 : pieces_.back().end;
    }

    [[nodiscard]] uint64_t                   size() const { return size_; }
    [[nodiscard]] uint64_t                   n_read() const { return n_read_; } // bytes that were not left out
    [[nodiscard]] const std::vector<piece> & pieces() const { return pieces_; } // in the order of the file

    // As read(2): n bytes at most, and fewer at the end of the file. What was left out stays unwritten.
    size_t read(char * to, size_t n) {
        n      = at_ < size_ ? std::min<uint64_t>(n, size_ - at_) : 0;
        auto p = std::upper_bound(pieces_.begin(), pieces_.end(), at_,
                                  [](uint64_t at, const piece & x) { return at < x.end; });
        for (size_t done = 0; done < n;) { // some piece ends where the file does
            const bool   inside = at_ >= p->begin;
            const size_t length = std::min<uint64_t>(n - done, (inside ? p->end : p->begin) - at_);
            if (!inside) {
                std::memset(to + done, 0, length);
            } else if (!weights_.has(p->name)) {
                std::memcpy(to + done, p->data + (at_ - p->begin), length);
                n_read_ += length;
            }
            done += length;
            at_ += length;
            p += at_ == p->end ? 1 : 0;
        }
        return n;
    }

    // As lseek(2).
    int64_t seek(int64_t to, int whence) {
        to += whence == SEEK_SET ? 0 : int64_t(whence == SEEK_CUR ? at_ : size_);
        if (to >= 0) {
            at_ = uint64_t(to);
        }
        return to;
    }

  private:
    const cpu::weight_loading &                  weights_;
    std::vector<std::unique_ptr<const file_map>> maps_;
    std::vector<uint8_t>                         header_; // of a model in several parts
    std::vector<piece>                           pieces_;
    uint64_t                                     size_   = 0;
    uint64_t                                     at_     = 0;
    uint64_t                                     n_read_ = 0;
};

partial_file::~partial_file() = default;

size_t partial_file::n_most() const {
    size_t n = 0;
    for (const piece & p : reader_->pieces()) {
        n = std::max(n, size_t(p.end - p.begin));
    }
    return n;
}

float partial_file::share_read() const {
    return float(double(reader_->n_read()) / double(reader_->size()));
}

bool partial_file::fill(cpu::weight_loading & weights, const std::function<bool(float)> & keep_going) const {
    size_t   n_given = 0;
    uint64_t n_done  = reader_->n_read();
    for (const piece & p : reader_->pieces()) {
        if (!weights.has(p.name)) {
            continue;
        }
        if (keep_going && !keep_going(float(double(n_done) / double(reader_->size())))) {
            return false;
        }
        n_done += p.end - p.begin;
        weights.give(p.name, p.data);
        p.part->forget(size_t(p.data - p.part->data()), size_t(p.end - p.begin));
        ++n_given;
    }
    if (n_given != weights.n_placed()) {
        throw error("two weights have one name, or one that the file does not have"); // no architecture is known to
    }
    return !keep_going || keep_going(1.0f);
}

#if defined(__linux__)

bool partial_file::can_read(const std::string & path) {
    const file_header facts = read_file_header(path);
    return std::all_of(facts.tensors.begin(), facts.tensors.end(),
                       [](const header_tensor & t) { return t.n_bytes < n_lazy; });
}

partial_file::partial_file(const std::string & path, const cpu::weight_loading & weights)
    : reader_(std::make_unique<file_reader>(path, weights)) {
    const cookie_io_functions_t calls = {
        .read  = [](void * c, char * to, size_t n) { return ssize_t(static_cast<file_reader *>(c)->read(to, n)); },
        .write = nullptr,
        .seek =
            [](void * c, off_t * to, int whence) {
                *to = static_cast<file_reader *>(c)->seek(*to, whence);
                return *to < 0 ? -1 : 0;
            },
        .close = nullptr,
    };
    stream_.reset(fopencookie(reader_.get(), "rb", calls));
    if (stream_ == nullptr) {
        throw error(error_kind::does_not_fit, "there is not enough memory to read " + path + "; free memory");
    }
    constexpr size_t n_buffer = size_t(64) << 10; // small enough to stay in a cache
    std::setvbuf(stream_.get(), nullptr, _IOFBF, n_buffer);
}

#else

bool partial_file::can_read(const std::string &) {
    return false;
}

partial_file::partial_file(const std::string & path, const cpu::weight_loading &) {
    throw error(error_kind::bad_value, path + " cannot be read in part on this system");
}

#endif

} // namespace duo
