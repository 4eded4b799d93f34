#include "deep_stack.h"

#include <string>

#include "error.h"
#include "huge_page.h"

#if defined(DUO_HAS_MMAP)
#include <exception>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace duo {

#if defined(DUO_HAS_MMAP)

namespace {

#if defined(MAP_NORESERVE)
constexpr int not_reserved = MAP_NORESERVE;
#else
constexpr int not_reserved = 0;
#endif

// Its lowest page is a guard: who goes below it ends with a signal, and writes nowhere.
class stack_memory {
  public:
    explicit stack_memory(size_t n_bytes) {
        const auto page = size_t(sysconf(_SC_PAGESIZE));
        size_           = (n_bytes + page - 1) / page * page + page;
        data_ = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | not_reserved, -1, 0);
        if (data_ == MAP_FAILED) {
            throw error(error_kind::does_not_fit, "the system gives no stack of " + std::to_string(n_bytes) +
                                                      " bytes, which a long line of text needs; shorten it");
        }
        mprotect(data_, page, PROT_NONE);
    }
    ~stack_memory() { munmap(data_, size_); }
    stack_memory(const stack_memory &)             = delete;
    stack_memory & operator=(const stack_memory &) = delete;

    [[nodiscard]] void * data() const { return data_; }
    [[nodiscard]] size_t size() const { return size_; }

  private:
    void * data_ = nullptr;
    size_t size_ = 0;
};

struct job {
    const std::function<void()> & work;
    std::exception_ptr            failure;
};

void * run(void * x) {
    auto & j = *static_cast<job *>(x);
    try {
        j.work();
    } catch (...) {
        j.failure = std::current_exception();
    }
    return nullptr;
}

} // namespace

void on_deep_stack(size_t n_bytes, const std::function<void()> & work) {
    const stack_memory stack(n_bytes);
    job                j{.work = work, .failure = nullptr};
    pthread_attr_t     attributes;
    pthread_attr_init(&attributes);
    pthread_t thread{};
    const int failed = pthread_attr_setstack(&attributes, stack.data(), stack.size()) != 0 ||
                       pthread_create(&thread, &attributes, run, &j) != 0;
    pthread_attr_destroy(&attributes);
    if (failed) {
        throw error(error_kind::does_not_fit, "the system starts no thread that reads a long line of text; shorten it");
    }
    pthread_join(thread, nullptr);
    if (j.failure) {
        std::rethrow_exception(j.failure);
    }
}

#else

void on_deep_stack(size_t, const std::function<void()> & work) {
    work();
}

#endif

} // namespace duo
