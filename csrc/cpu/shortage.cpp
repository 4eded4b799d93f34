#include "shortage.h"

#include <cstdlib>
#include <memory>
#include <new>

namespace duo::cpu {

namespace {

constexpr size_t n_spare = 8 << 20; // bytes; tables of a graph's nodes take less

thread_local bool found = false;

// operator new calls this when it finds no memory.
void on_new_failed() {
    found = true;
    throw std::bad_alloc();
}

} // namespace

shortage_watch::shortage_watch() {
    // For the life of the process; a handler that somebody else has installed stays.
    static const bool installed = [] {
        if (std::get_new_handler() == nullptr) {
            std::set_new_handler(on_new_failed);
        }
        return true;
    }();
    static_cast<void>(installed);
    found = false;
}

bool shortage_watch::seen() const {
    return found;
}

void require_spare() {
    const std::unique_ptr<void, decltype(&std::free)> spare(std::malloc(n_spare), &std::free);
    void * volatile const got = spare.get(); // or the compiler may leave both calls out
    if (got == nullptr) {
        throw std::bad_alloc();
    }
}

void note_shortage() {
    found = true;
}

} // namespace duo::cpu
