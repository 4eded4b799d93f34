// A deleter of std::unique_ptr for what a C library frees by a function.
#pragma once

namespace duo {

template <auto free> struct freed_by {
    template <typename T> void operator()(T * x) const { free(x); }
};

} // namespace duo
