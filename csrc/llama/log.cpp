#include "log.h"

#include <cstdio>
#include <memory>
#include <mutex>

#include <llama.h>

#include "base/error.h"
#include "log_lines.h"

namespace duo {

namespace {

struct closer {
    void operator()(std::FILE * f) const { std::fclose(f); }
};

// Never destroyed: libllama may log while the process ends.
struct sink {
    std::mutex                         mutex;
    bool                               to_stderr = false;
    std::unique_ptr<std::FILE, closer> file;
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
    if (s.to_stderr) {
        std::fputs(text, stderr);
    }
    if (s.file) {
        std::fputs(text, s.file.get());
        std::fflush(s.file.get());
    }
}

} // namespace

void log_install() {
    llama_log_set(on_line, nullptr);
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

void log_clear_errors() {
    clear_log_lines();
}

std::string log_reason() {
    const std::string lines = joined_log_lines();
    return lines.empty() ? "" : " (" + lines + ")";
}

} // namespace duo
