#include "weight_memory.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>

#if defined(__linux__)
#include <sys/mman.h>
#include <unistd.h>
#elif defined(_WIN32)
#include <malloc.h>
#endif

#include <ggml-backend.h>

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

constexpr size_t huge_page = size_t(2) << 20;

// sparse: most of it will not be used, and does not count as needed before make_usable().
void * allocate(size_t & size, bool sparse, bool lock) {
    size             = (size + huge_page - 1) / huge_page * huge_page;
    const int access = sparse ? PROT_NONE : PROT_READ | PROT_WRITE;
    void *    memory = mmap(nullptr, size + huge_page, access, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        return nullptr;
    }
    // Align to a huge page and free the rest.
    auto *       begin = static_cast<uint8_t *>(memory);
    const size_t skip  = (huge_page - reinterpret_cast<uintptr_t>(memory) % huge_page) % huge_page;
    if (skip > 0) {
        munmap(begin, skip);
    }
    begin += skip;
    if (skip < huge_page) {
        munmap(begin + size, huge_page - skip);
    }
    madvise(begin, size, MADV_HUGEPAGE); // only a hint: without huge pages reading is slower
    if (lock && !sparse) {
        mlock(begin, size); // if the limit is too low, the weights stay unlocked, as in llama.cpp
    }
    return begin;
}

void release(void * memory, size_t size) {
    munmap(memory, size);
}

// Of sparse memory.
bool make_usable(void * from, size_t n, bool lock) {
    const auto      page  = uintptr_t(sysconf(_SC_PAGESIZE));
    const uintptr_t begin = reinterpret_cast<uintptr_t>(from) / page * page;
    const uintptr_t end   = (reinterpret_cast<uintptr_t>(from) + n + page - 1) / page * page;
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

std::unique_ptr<weight_memory> weight_memory::make(size_t size) {
    size                = std::max(size, size_t(1));
    const auto   w      = loading == nullptr ? weight_loading::wishes() : loading->wishes_;
    const bool   packed = loading != nullptr && loading->packed_ != nullptr;
    void * const memory = allocate(size, packed && !w.copy, w.lock);
    if (memory == nullptr) {
        note_shortage();
        return nullptr;
    }
    std::unique_ptr<weight_memory> m(new weight_memory(memory, size)); // the constructor is private
    if (packed) {
        m->packed_ = loading->packed_;
        m->copies_ = w.copy;
    }
    return m;
}

weight_memory::weight_memory(void * base, size_t size) : base_(base), size_(size) {
}

weight_memory::~weight_memory() {
    release(base_, size_);
}

bool weight_memory::place(ggml_tensor * t, ggml_type stored, size_t n_bytes) const {
    const packed_weight * const w = packed_ == nullptr ? nullptr : packed_->find(t, stored);
    if (w != nullptr && !copies_) {
        t->data = const_cast<uint8_t *>(w->data); // ggml's field is for any use, and weights are only read
    } else if (packed_ != nullptr && !copies_ &&
               !make_usable(t->data, n_bytes, loading != nullptr && loading->wishes_.lock)) {
        note_shortage();
        return false;
    }
    if (loading == nullptr) {
        return true;
    }
    ++loading->n_placed_;
    loading->n_packed_ += w != nullptr ? 1 : 0;
    if (loading->later_) {
        loading->tensors_.insert_or_assign(ggml_get_name(t),
                                           weight_loading::whole_tensor{t, {t->ne[1], t->ne[2], t->ne[3]}});
        std::fill(t->ne + 1, t->ne + GGML_MAX_DIMS, 1);
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
