// Models as Python sees them: they may outlive the engine that has loaded them.
#pragma once

#include <pybind11/pybind11.h>

#include <functional>
#include <memory>
#include <utility>

#include "base/error.h"
#include "llama/model.h"

namespace duo {

// A model while one of its members is read. If the engine was closed meanwhile, this frees the model, which takes long:
// other Python threads run on.
class model_in_use {
  public:
    explicit model_in_use(std::shared_ptr<const llama_token_model> model) : model_(std::move(model)) {}
    model_in_use(const model_in_use &)             = delete;
    model_in_use & operator=(const model_in_use &) = delete;
    ~model_in_use() {
        if (model_.use_count() == 1 && PyGILState_Check() == 1) {
            const pybind11::gil_scoped_release released;
            model_.reset();
        }
    }

    const llama_token_model & operator*() const { return *model_; }
    const llama_token_model * operator->() const { return model_.get(); }

  private:
    std::shared_ptr<const llama_token_model> model_;
};

// A model as Python sees it. It may outlive the engine; its members then throw.
class model_view {
  public:
    explicit model_view(const std::shared_ptr<const llama_token_model> & model) : model_(model) {}

    model_in_use get() const {
        auto model = model_.lock();
        if (!model) {
            throw error(error_kind::cancelled, "this Duo is closed; make a new one");
        }
        return model_in_use(std::move(model));
    }

    // Turns a getter of the model, or of one of its parts, into a getter of the view.
    template <auto getter> static auto of(const model_view & v) { return std::invoke(getter, *v.get()); }
    template <auto getter> static auto of_weights(const model_view & v) {
        return std::invoke(getter, v.get()->weights());
    }

  private:
    std::weak_ptr<const llama_token_model> model_;
};

} // namespace duo
