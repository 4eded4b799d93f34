// The exception for everything a user can cause: one full sentence that says what was wrong and what to do.
#pragma once

#include <stdexcept>
#include <string>

namespace duo {

class error : public std::runtime_error {
  public:
    explicit error(const std::string & sentence) : std::runtime_error(sentence) {}
};

} // namespace duo
