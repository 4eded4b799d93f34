#include "log.h"

#include <cstdio>
#include <memory>
#include <mutex>

#include <llama.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/freed_by.h"
#include "log_lines.h"

namespace duo {

namespace {

// Never destroyed: libllama may log while the process ends.
struct sink {
    std::mutex                                        mutex;
    bool                                              to_stderr = false;
    log_styler                                        styler;
    int64_t                                           t_begin_us = now_us();
    log_level                                         level      = log_level::info; // of the line that came last
    std::unique_ptr<std::FILE, freed_by<std::fclose>> file;
};

sink & the_sink() {
    static auto & s = *std::make_unique<sink>().release();
    return s;
}

void on_line(ggml_log_level level, const char * text, void *) {
    keep_log_line(level == GGML_LOG_LEVEL_ERROR  ? log_kind::error
                  : level == GGML_LOG_LEVEL_CONT ? log_kind::continued
                                                 : log_kind::other,
                  text);
    sink &                            s = the_sink();
    const std::lock_guard<std::mutex> lock(s.mutex);
    if (!s.to_stderr && !s.file) {
        return;
    }
    s.level                = level == GGML_LOG_LEVEL_CONT ? s.level : log_level(level);
    const std::string line = s.styler.styled(s.level, text, now_us() - s.t_begin_us);
    if (s.to_stderr) {
        std::fputs(line.c_str(), stderr);
    }
    if (s.file) {
        std::fputs(line.c_str(), s.file.get());
        std::fflush(s.file.get());
    }
}

} // namespace

void log_install() {
    llama_log_set(on_line, nullptr);
}

ggml_log_callback log_callback() {
    return on_line;
}

void log_to(bool to_stderr, const std::string & path) {
    log_install(); // `import llama_cpp` installs its own callback
    sink &                            s = the_sink();
    const std::lock_guard<std::mutex> lock(s.mutex);
    s.to_stderr = to_stderr;
    s.file.reset();
    if (!path.empty()) {
        s.file.reset(std::fopen(path.c_str(), "a"));
        if (!s.file) {
            throw error(error_kind::bad_value,
                        "the log file " + path + " cannot be written; choose another --log-file");
        }
    }
}

void set_log_style(const log_style & style) {
    sink &                            s = the_sink();
    const std::lock_guard<std::mutex> lock(s.mutex);
    s.styler.set(style);
}

void log_clear_errors() {
    clear_log_lines();
}

std::string log_reason() {
    const std::string lines = joined_log_lines();
    return lines.empty() ? "" : " (" + lines + ")";
}

} // namespace duo
