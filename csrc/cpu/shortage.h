// Whether an allocation of this thread failed, even if libllama caught the exception and only logged it.
#pragma once

#include <cstddef>

namespace duo::cpu {

// Watches the thread that creates it. One at a time for each thread.
class shortage_watch {
  public:
    shortage_watch();
    bool seen() const;
};

// Throws std::bad_alloc if hardly any memory is left. Before a pass, because libggml's scheduler does not look whether
// the C library gives it what it asks for.
void require_spare();

// An allocation of this thread failed.
void note_shortage();

} // namespace duo::cpu
