// Whether an allocation of this thread failed, even if libllama caught the exception and only logged it.
#pragma once

namespace duo::cpu {

// Watches the thread that creates it. One at a time for each thread.
class shortage_watch {
  public:
    shortage_watch();
    bool seen() const;
};

// An allocation of this thread failed.
void note_shortage();

} // namespace duo::cpu
