// Calls Python while models are loading: signals and progress.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>

#include <pybind11/pybind11.h>

#include "base/clock.h"
#include "base/error.h"
#include "bindings.h"
#include "llama/model.h"

namespace duo {

// Handles Ctrl-C and reports progress while a large file is read. Each check takes the GIL, so not every tensor gets
// one.
struct load_watch {
    pybind11::object progress; // (path, share) -> None, or None
    std::string      path;
    int64_t          t_next_us = 0;

    bool operator()(float share) {
        if (now_us() < t_next_us && share < 1.0f) {
            return true;
        }
        t_next_us = now_us() + 100'000;
        const pybind11::gil_scoped_acquire held;
        if (PyErr_CheckSignals() != 0) {
            return false;
        }
        if (progress.is_none()) {
            return true;
        }
        try {
            progress(path_text(path), share);
        } catch (pybind11::error_already_set & e) {
            e.restore(); // load() raises it
            return false;
        }
        return true;
    }
};

// Runs load() without the GIL, watches the loading of each of these models, and returns the result of load(). Throws
// duo::error, or what Python raised meanwhile.
template <typename Load>
auto load_watched(std::initializer_list<model_options *> models, const pybind11::object & progress, const Load & load) {
    for (model_options * m : models) {
        // Shared: a copy of the callback must not count references without the GIL.
        m->keep_loading = [watch = std::make_shared<load_watch>(load_watch{progress, m->path})](float share) {
            return (*watch)(share);
        };
    }
    try {
        auto loaded = [&] {
            const pybind11::gil_scoped_release released;
            return load();
        }();
        for (model_options * m : models) {
            m->keep_loading = nullptr;
        }
        return loaded;
    } catch (const error &) {
        if (PyErr_Occurred() != nullptr) {
            throw pybind11::error_already_set();
        }
        throw;
    }
}

} // namespace duo
