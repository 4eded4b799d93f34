#include "failed_check.h"

#include <atomic>
#include <cstdio>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string_view>

#include <ggml.h>

#include "cpu/shortage.h"
#include "log_lines.h"

namespace duo {

namespace {

thread_local int  depth          = 0;
thread_local int  depth_shortage = 0;
thread_local bool found_shortage = false;

void tell(const char * message) {
    std::fprintf(stderr, "%s\n", message);
}

std::atomic<void (*)(const char *)> fallback{tell};

// Without the path of the source on the machine that compiled it.
std::string_view shortened(std::string_view message) {
    const size_t end = message.find(':');
    const size_t at  = end == std::string_view::npos ? end : message.rfind('/', end);
    return at == std::string_view::npos ? message : message.substr(at + 1);
}

// A call of ggml-cuda's driver failed: "ggml-cuda.cu:109: CUDA error", or ROCm's, or MUSA's. Its log says which.
bool is_of_driver(std::string_view message) {
    return message.find("ggml-cuda") != std::string_view::npos && message.ends_with(" error") &&
           !message.ends_with("fatal error");
}

// "CUDA error: out of memory" of the lines that ggml-cuda has logged; empty: none says it. libllama will log the error
// once more, so the lines go.
std::string reason_of_driver() {
    const std::string lines = joined_log_lines();
    const size_t      at    = lines.find(" error: ");
    if (at == std::string::npos) {
        return {};
    }
    clear_log_lines();
    const size_t before = lines.rfind("; ", at);
    const size_t begin  = before == std::string::npos ? 0 : before + 2;
    return lines.substr(begin, lines.find(';', at) - begin);
}

// The callers in C have tables for unwinding on all systems that duo supports, and hold no lock where they assert.
void on_abort(const char * message) {
    const std::string_view text = message;
    if (text.find("ggml-rpc") !=
        std::string_view::npos) { // a server is lost: it can be started again, the file is right
        fallback.load()(message);
        return;
    }
    if (depth + depth_shortage > 0 && text.find("mem_buffer != NULL") != std::string_view::npos) { // ggml_init
        cpu::note_shortage();
        found_shortage = true;
        throw std::bad_alloc();
    }
    if (depth + depth_shortage > 0 && is_of_driver(text)) {
        found_shortage           = true;
        const std::string reason = reason_of_driver();
        throw std::runtime_error(reason.empty() ? std::string(shortened(text)) : reason);
    }
    if (depth > 0) {
        throw std::runtime_error(std::string(shortened(text)));
    }
    fallback.load()(message);
}

// Models are loaded and evaluated in several threads, and libggml has one callback without a lock.
void install() {
    static std::mutex     mutex;
    const std::lock_guard lock(mutex);
    ggml_set_abort_callback(on_abort);
}

} // namespace

throwing_checks::throwing_checks() {
    install(); // `import llama_cpp` or another library may have installed its own
    ++depth;
}

throwing_checks::~throwing_checks() {
    --depth;
}

throwing_shortage::throwing_shortage() {
    install();
    ++depth_shortage;
    found_shortage = false;
}

throwing_shortage::~throwing_shortage() {
    --depth_shortage;
}

bool throwing_shortage::threw() const {
    return found_shortage;
}

void on_failed_check(void (*otherwise)(const char * message)) {
    fallback = otherwise;
    install();
}

} // namespace duo
