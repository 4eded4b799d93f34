// The backends of a libggml that was built without any, as in a wheel: libraries beside it, one for each kind of CPU.
#pragma once

namespace duo::cpu {

// Loads the library that fits this processor best, and those of other devices. Call it before anything asks for a
// device. Does nothing where libggml is linked to its backends.
void load_plugins();

} // namespace duo::cpu
