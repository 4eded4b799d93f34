#include "log.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <mutex>
#include <vector>

#include <llama.h>

#include "../error.h"

namespace duo {

namespace {

struct closer {
    void operator()(std::FILE * f) const { std::fclose(f); }
};

// Never destroyed: libllama may log while the process ends.
struct sink {
    std::mutex                         mutex;
    std::vector<std::string>           errors;
    bool                               to_stderr   = false;
    bool                               error_line_ = false;
    std::unique_ptr<std::FILE, closer> file;
};

sink & the_sink() {
    static auto & s = *std::make_unique<sink>().release();
    return s;
}

void on_line(ggml_log_level level, const char * text, void *) {
    sink &                            s = the_sink();
    const std::lock_guard<std::mutex> lock(s.mutex);
    const std::string                 line(text);
    s.error_line_ = level == GGML_LOG_LEVEL_ERROR || (level == GGML_LOG_LEVEL_CONT && s.error_line_);
    if (s.error_line_ && s.errors.size() < 4) {
        s.errors.push_back(line);
    }
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
    sink &                            s = the_sink();
    const std::lock_guard<std::mutex> lock(s.mutex);
    s.errors.clear();
}

std::string log_errors() {
    sink &                            s = the_sink();
    const std::lock_guard<std::mutex> lock(s.mutex);
    std::string                       all;
    for (const std::string & line : s.errors) {
        // "function: what happened\n" -> "what happened"; later lines mostly say that the caller failed.
        const size_t colon = line.find(": ");
        const bool   named = colon != std::string::npos && line.find(' ') == colon + 1;
        std::string  text  = named ? line.substr(colon + 2) : line;
        if (text.starts_with("error loading model: ")) {
            text.erase(0, text.find(':') + 2);
        }
        std::replace(text.begin(), text.end(), '\n', ' ');
        text.erase(text.find_last_not_of(" .") + 1);
        if (!text.empty() && (all.empty() || !text.starts_with("failed to load model"))) {
            all += (all.empty() ? "" : "; ") + text;
        }
    }
    return all;
}

std::string log_reason() {
    const std::string lines = log_errors();
    return lines.empty() ? "" : " (" + lines + ")";
}

} // namespace duo
