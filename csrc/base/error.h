// The exception for everything a user can cause: one full sentence that says what was wrong and what to do.
#pragma once

#include <array>
#include <cstddef>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>

namespace duo {

// Python has a class for each, in src/duo/errors.py; bindings.cpp maps one to the other.
enum class error_kind { internal, bad_value, unknown_model, context_full, does_not_fit, busy, peer_lost, cancelled };

// Their codes in Python and between processes. In the order of error_kind.
constexpr std::array<std::string_view, 8> error_codes = {"internal",     "bad_value", "unknown_model", "context_full",
                                                         "does_not_fit", "busy",      "peer_lost",     "cancelled"};
static_assert(error_codes.size() == size_t(error_kind::cancelled) + 1);

// The kind with this code; internal if this version does not know it.
constexpr error_kind kind_of_code(std::string_view code) {
    for (size_t i = 0; i < error_codes.size(); ++i) {
        if (code == error_codes[i]) {
            return error_kind(i);
        }
    }
    return error_kind::internal;
}

class error : public std::runtime_error {
  public:
    explicit error(const std::string & sentence) : std::runtime_error(sentence) {} // a failure of duo or the system
    error(error_kind kind, const std::string & sentence) : std::runtime_error(sentence), kind_(kind) {}

    error_kind kind() const { return kind_; }

  private:
    error_kind kind_ = error_kind::internal;
};

// A row of a pass is NaN. The cause may be another row of the same pass: attention gives a masked cell the weight 0,
// and 0 * NaN is NaN.
class nan_error : public error {
  public:
    explicit nan_error(const std::string & sentence) : error(error_kind::bad_value, sentence) {}
};

// Why something failed, for another thread to report. Empty sentence: nothing failed.
struct failure {
    error_kind  kind = error_kind::internal;
    std::string sentence;
};

inline failure failure_of(const std::exception & e) noexcept {
    try {
        if (const auto * known = dynamic_cast<const error *>(&e)) {
            return {known->kind(), known->what()};
        }
        if (dynamic_cast<const std::bad_alloc *>(&e) != nullptr) {
            return {error_kind::does_not_fit, "there is not enough memory; free memory or choose smaller models"};
        }
        return {error_kind::internal, e.what()};
    } catch (...) {
        return {error_kind::does_not_fit, "out of memory"}; // so short a string needs no memory of its own
    }
}

// In a catch block: what was caught.
inline failure failure_caught() noexcept {
    try {
        throw;
    } catch (const std::exception & e) {
        return failure_of(e);
    } catch (...) {
        return {error_kind::internal, "unknown failure"};
    }
}

} // namespace duo
