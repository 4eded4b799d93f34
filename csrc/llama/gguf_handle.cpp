#include "gguf_handle.h"

#include <filesystem>
#include <optional>
#include <utility>

#include "base/error.h"
#include "recent_files.h"
#include "unpacked_file.h"

namespace duo {

namespace {

using shared_header = std::shared_ptr<const parsed_header>;

shared_header parse(const std::string & path) {
    auto            h       = std::make_shared<parsed_header>();
    ggml_context *  tensors = nullptr;
    shared_unpacked file;
    try {
        file = open_unpacked(path);
    } catch (const error &) { // check_model_file() says what is wrong
        return h;
    }
    if (file != nullptr) {
        h->n_unpacked = file->size();
        h->values.reset(gguf_init_from_file_ptr(open_stream(file).get(), {.no_alloc = true, .ctx = &tensors}));
    } else {
        h->values.reset(gguf_init_from_file(path.c_str(), {.no_alloc = true, .ctx = &tensors}));
    }
    h->tensors.reset(tensors);
    return h;
}

recent_files<parsed_header> recent_headers;

shared_header header_of(const std::string & path) {
    const std::optional<file_version> before = version_of(path);
    if (shared_header found = before ? recent_headers.find(*before) : nullptr) {
        return found;
    }
    shared_header h = parse(path);
    if (before && h->values != nullptr && version_of(path) == before) {
        recent_headers.keep(*before, h);
    }
    return h;
}

} // namespace

gguf_handle::gguf_handle(const std::string & path) : header_(header_of(path)) {
}

void forget_header(const std::string & path) {
    std::error_code ec;
    recent_headers.forget(std::filesystem::canonical(path, ec));
}

} // namespace duo
