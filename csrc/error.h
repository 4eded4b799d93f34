// The exception for everything a user can cause: one full sentence that says what was wrong and what to do.
#pragma once

#include <stdexcept>
#include <string>

namespace duo {

// Python has a class for each, in src/duo/errors.py; bindings.cpp maps one to the other.
enum class error_kind { internal, bad_value, unknown_model, context_full, does_not_fit, busy, peer_lost, cancelled };

class error : public std::runtime_error {
  public:
    explicit error(const std::string & sentence) : std::runtime_error(sentence) {} // a failure of duo or the system
    error(error_kind kind, const std::string & sentence) : std::runtime_error(sentence), kind_(kind) {}

    error_kind kind() const { return kind_; }

  private:
    error_kind kind_ = error_kind::internal;
};

} // namespace duo
