#include "weight_memory.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>

#if defined(__linux__)
#include <sys/mman.h>
#elif defined(_WIN32)
#include <malloc.h>
#endif

#include <ggml-backend.h>

#include "base/huge_page.h"
#include "shortage.h"
#include "team.h"

namespace duo::cpu {

namespace {

thread_local weight_loading * loading = nullptr;

void copy(const packed_weight & w, void * to) {
    constexpr size_t    n_piece = size_t(1) << 20;
    std::atomic<size_t> next    = 0;
    on_team(threads_here(), [&] {
        for (size_t at = next.fetch_add(n_piece); at < w.n_bytes; at = next.fetch_add(n_piece)) {
            std::memcpy(static_cast<uint8_t *>(to) + at, w.data + at, std::min(n_piece, w.n_bytes - at));
        }
    });
}

#if defined(__linux__)

// sparse: most of it will not be used, and does not count as needed before make_usable().
void * allocate(size_t & size, bool sparse, bool lock) {
    size                = up_to(size, huge_page);
    void * const memory = map_aligned(size, sparse ? PROT_NONE : PROT_READ | PROT_WRITE);
    if (memory != nullptr) {
        madvise(memory, size, MADV_HUGEPAGE); // only a hint: without huge pages reading is slower
    }
    if (memory != nullptr && lock && !sparse) {
        mlock(memory, size); // if the limit is too low, the weights stay unlocked, as in llama.cpp
    }
    return memory;
}

void release(void * memory, size_t size) {
    munmap(memory, size);
}

// Of sparse memory.
bool make_usable(void * from, size_t n, bool lock) {
    const uintptr_t begin = reinterpret_cast<uintptr_t>(from) / page_size() * page_size();
    const uintptr_t end   = up_to(reinterpret_cast<uintptr_t>(from) + n, page_size());
    auto * const    first = reinterpret_cast<void *>(begin);
    if (mprotect(first, end - begin, PROT_READ | PROT_WRITE) != 0) {
        return false;
    }
    if (lock) {
        mlock(first, end - begin);
    }
    return true;
}

#elif defined(_WIN32)

void * allocate(size_t & size, bool, bool) {
    return _aligned_malloc(size, 64);
}

void release(void * memory, size_t) {
    _aligned_free(memory);
}

bool make_usable(void *, size_t, bool) {
    return true;
}

#else

void * allocate(size_t & size, bool, bool) {
    void * memory = nullptr;
    return posix_memalign(&memory, 64, size) == 0 ? memory : nullptr;
}

void release(void * memory, size_t) {
    std::free(memory);
}

bool make_usable(void *, size_t, bool) {
    return true;
}

#endif

} // namespace

weight_loading::weight_loading(std::shared_ptr<const packed_weights> packed, wishes w)
    : before_(std::exchange(loading, this)), packed_(std::move(packed)), wishes_(w) {
}

weight_loading::~weight_loading() {
    loading = before_;
}

bool weight_loading::ignores() {
    return loading != nullptr && loading->later_;
}

bool weight_loading::give(const std::string & name, const uint8_t * file, size_t n_bytes) {
    const whole_tensor & w = tensors_.at(name);
    std::copy(w.ne.begin(), w.ne.end(), w.tensor->ne + 1);
    if (ggml_nbytes(w.tensor) != n_bytes) {
        return false;
    }
    later_ = false;
    ggml_backend_tensor_set(w.tensor, file, 0, n_bytes);
    later_ = true;
    return true;
}

void weight_loading::note(ggml_tensor * t, bool is_packed) {
    ++n_placed_;
    n_packed_ += is_packed ? 1 : 0;
    if (later_) {
        tensors_.insert_or_assign(ggml_get_name(t), whole_tensor{t, {t->ne[1], t->ne[2], t->ne[3]}, is_packed});
        std::fill(t->ne + 1, t->ne + GGML_MAX_DIMS, 1);
    }
}

std::unique_ptr<weight_memory> weight_memory::make(size_t size) {
    size                = std::max(size, size_t(1));
    const auto   w      = loading == nullptr ? weight_loading::wishes() : loading->wanted();
    const auto   packed = loading == nullptr ? nullptr : loading->packed();
    void * const memory = allocate(size, packed != nullptr && !w.copy, w.lock);
    if (memory == nullptr) {
        note_shortage();
        return nullptr;
    }
    // The constructor is private.
    return std::unique_ptr<weight_memory>(new weight_memory(memory, size, packed, w.copy));
}

weight_memory::weight_memory(void * base, size_t size, std::shared_ptr<const packed_weights> packed, bool copies)
    : base_(base), size_(size), packed_(std::move(packed)), copies_(copies) {
}

weight_memory::~weight_memory() {
    release(base_, size_);
}

bool weight_memory::place(ggml_tensor * t, ggml_type stored, size_t n_bytes) const {
    const packed_weight * const w = packed_ == nullptr ? nullptr : packed_->find(t, stored);
    if (w != nullptr && !copies_) {
        t->data = const_cast<uint8_t *>(w->data); // ggml's field is for any use, and weights are only read
    } else if (packed_ != nullptr && !copies_ &&
               !make_usable(t->data, n_bytes, loading != nullptr && loading->wanted().lock)) {
        note_shortage();
        return false;
    }
    if (loading != nullptr) {
        loading->note(t, w != nullptr);
    }
    return true;
}

bool weight_memory::fill(const ggml_tensor * t, ggml_type stored) const {
    const packed_weight * const w = packed_ == nullptr ? nullptr : packed_->find(t, stored);
    if (w != nullptr && copies_) {
        copy(*w, t->data);
        packed_->forget(*w);
    }
    return w != nullptr;
}

} // namespace duo::cpu
