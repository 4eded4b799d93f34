// Runs a function when a scope ends, however it ends.
#pragma once

#include <utility>

namespace duo {

template <typename F> class on_leaving {
  public:
    explicit on_leaving(F f) : f_(std::move(f)) {}
    ~on_leaving() { f_(); }
    on_leaving(const on_leaving &)             = delete;
    on_leaving & operator=(const on_leaving &) = delete;

  private:
    F f_;
};

} // namespace duo
