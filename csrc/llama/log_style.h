// How a log line looks, as llama.cpp's common/log.cpp writes it: --log-prefix, --log-timestamps, --log-jsonl.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace duo {

struct log_style {
    bool prefix     = false; // "I ", "W ", ...: the level
    bool timestamps = false; // before the prefix; "0.01.234.567": minutes, seconds, milliseconds, microseconds
    bool jsonl      = false; // a JSON object for each line instead
};

enum class log_level : uint8_t { none, debug, info, warn, error }; // in ggml's order

// One log.
class log_styler {
  public:
    void set(const log_style & style) { style_ = style; }

    // The next part of the log in this style. time_us: since the log began.
    std::string styled(log_level level, std::string_view text, int64_t time_us);

  private:
    log_style style_;
    bool      at_begin_ = true; // of a line, which may come in several parts
};

} // namespace duo
