// Asks a Python function about every token of a text, from the target's thread.
#pragma once

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include "base/error.h"
#include "text/token_hook.h"

namespace duo {

// Nobody may hold the GIL while waiting for the target's thread.
class python_hook : public token_hook {
  public:
    // ask(input_ids: int32 [n], scores: float32 [n_vocab]) -> bool: whether the text goes on. It changes scores in
    // place.
    explicit python_hook(pybind11::object ask) : ask_(std::move(ask)) {}
    python_hook(const python_hook &)             = delete;
    python_hook & operator=(const python_hook &) = delete;

    // The request that holds it is freed by a thread without the GIL.
    ~python_hook() override {
        const pybind11::gil_scoped_acquire held;
        ask_ = pybind11::object();
    }

    bool on_row(std::span<const token_id> text, std::span<float> logits) override {
        const pybind11::gil_scoped_acquire held;
        try {
            // Copies, because the caller may keep the arrays.
            const pybind11::array_t<int32_t> ids(pybind11::ssize_t(text.size()), text.data());
            const pybind11::array_t<float>   scores(pybind11::ssize_t(logits.size()), logits.data());
            const bool                       goes_on = ask_(ids, scores).cast<bool>();
            std::copy_n(scores.data(), logits.size(), logits.begin());
            chosen_.assign(logits.begin(), logits.end());
            return goes_on;
        } catch (const std::exception & e) { // error_already_set, too, whose destructor needs the GIL
            throw error(std::string("a logits_processor or stopping_criteria failed: ") + e.what());
        }
    }

    // The caller's function sees each row once.
    void reconsider(std::span<const token_id> /*text*/, std::span<float> logits) override {
        for (size_t i = 0; i < logits.size(); ++i) {
            logits[i] = std::isfinite(logits[i]) ? chosen_[i] : logits[i];
        }
    }

  private:
    pybind11::object   ask_;
    std::vector<float> chosen_; // the last row, as the function left it
};

} // namespace duo
