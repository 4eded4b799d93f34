// What happens in Python while a model is loaded.
#pragma once

#include <string>

#include <pybind11/pybind11.h>

#include "core/clock.h"

namespace duo {

// Ctrl-C while a large file is read, and a look at how far it is. Each look takes the GIL, so not for each tensor.
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
            progress(pybind11::reinterpret_steal<pybind11::str>(PyUnicode_DecodeFSDefault(path.c_str())), share);
        } catch (pybind11::error_already_set & e) {
            e.restore(); // load() raises it
            return false;
        }
        return true;
    }
};

} // namespace duo
