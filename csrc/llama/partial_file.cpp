#include "partial_file.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/file_map.h"
#include "gguf_handle.h"

#if defined(__linux__)
#include <sys/types.h>
#endif

namespace duo {

namespace {

constexpr uint64_t n_lazy = uint64_t(4) << 30; // libllama may map a tensor of this size (llama_lazy_mode)

struct tensor_range {
    uint64_t    begin, end;
    std::string name;
};

} // namespace

// What the stream's functions work on.
class file_reader {
  public:
    file_reader(const std::string & path, const cpu::weight_loading & weights) : map_(path, true), weights_(weights) {
        const gguf_handle g(path);
        for (int64_t i = 0; g && i < gguf_get_n_tensors(g.get()); ++i) {
            const uint64_t begin = gguf_get_data_offset(g.get()) + gguf_get_tensor_offset(g.get(), i);
            tensors_.push_back({begin, begin + gguf_get_tensor_size(g.get(), i), gguf_get_tensor_name(g.get(), i)});
        }
        std::sort(tensors_.begin(), tensors_.end(), [](const auto & a, const auto & b) { return a.begin < b.begin; });
    }

    [[nodiscard]] const file_map &                  map() const { return map_; }
    [[nodiscard]] const std::vector<tensor_range> & tensors() const { return tensors_; } // in the order of the file

    // As read(2): n bytes at most, and fewer at the end of the file. What was left out stays unwritten.
    size_t read(char * to, size_t n) {
        n      = at_ < map_.size() ? std::min(n, map_.size() - at_) : 0;
        auto t = std::upper_bound(tensors_.begin(), tensors_.end(), at_,
                                  [](uint64_t at, const tensor_range & r) { return at < r.end; });
        for (size_t done = 0; done < n;) {
            const bool     inside = t != tensors_.end() && at_ >= t->begin;
            const uint64_t end    = t == tensors_.end() ? map_.size() : inside ? t->end : t->begin;
            const size_t   piece  = std::min<uint64_t>(n - done, end - at_);
            if (!inside || !weights_.has(t->name)) {
                std::memcpy(to + done, map_.data() + at_, piece);
            }
            done += piece;
            at_ += piece;
            t += inside && at_ == t->end ? 1 : 0;
        }
        return n;
    }

    // As lseek(2).
    int64_t seek(int64_t to, int whence) {
        to += whence == SEEK_SET ? 0 : int64_t(whence == SEEK_CUR ? at_ : map_.size());
        if (to >= 0) {
            at_ = uint64_t(to);
        }
        return to;
    }

  private:
    file_map                    map_;
    const cpu::weight_loading & weights_;
    std::vector<tensor_range>   tensors_;
    uint64_t                    at_ = 0;
};

partial_file::~partial_file() = default;

size_t partial_file::n_most() const {
    size_t n = 0;
    for (const tensor_range & t : reader_->tensors()) {
        n = std::max(n, size_t(t.end - t.begin));
    }
    return n;
}

bool partial_file::fill(cpu::weight_loading & weights, const std::function<bool(float)> & keep_going) const {
    size_t       n_given = 0;
    const auto & map     = reader_->map();
    for (const tensor_range & t : reader_->tensors()) {
        if (!weights.has(t.name)) {
            continue;
        }
        if (keep_going && !keep_going(float(double(t.begin) / double(map.size())))) {
            return false;
        }
        weights.give(t.name, map.data() + t.begin);
        map.forget(t.begin, t.end - t.begin);
        ++n_given;
    }
    if (n_given != weights.n_tensors()) {
        throw error("a weight buffer has a tensor that its file does not have"); // libllama takes its names from there
    }
    return !keep_going || keep_going(1.0f);
}

#if defined(__linux__)

bool partial_file::can_read(const std::string & path) {
    const gguf_handle g(path);
    if (!g || gguf_find_key(g.get(), "split.count") >= 0) {
        return false;
    }
    for (int64_t i = 0; i < gguf_get_n_tensors(g.get()); ++i) {
        if (gguf_get_tensor_size(g.get(), i) >= n_lazy) {
            return false;
        }
    }
    return true;
}

partial_file::partial_file(const std::string & path, const cpu::weight_loading & weights)
    : reader_(std::make_unique<file_reader>(path, weights)) {
    const cookie_io_functions_t calls = {
        .read  = [](void * c, char * to, size_t n) { return ssize_t(static_cast<file_reader *>(c)->read(to, n)); },
        .write = nullptr,
        .seek =
            [](void * c, off64_t * to, int whence) {
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
