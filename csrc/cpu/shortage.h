// Whether this thread found too little memory, even where libllama caught the exception and only logged it.
#pragma once

namespace duo::cpu {

// Watches the thread that makes it. One at a time.
class shortage_watch {
  public:
    shortage_watch();
    bool seen() const;
};

// An allocation of this thread failed.
void note_shortage();

} // namespace duo::cpu
