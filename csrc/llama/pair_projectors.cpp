#include "pair_projectors.h"

#include "base/error.h"

namespace duo {

std::shared_ptr<projector> load_projector(const projector_options & opt, const model_weights & model) {
    return opt.path.empty() ? nullptr : std::make_shared<projector>(opt, model);
}

std::shared_ptr<projector> load_draft_projector(const projector_options & opt, const model_weights & draft,
                                                const llama_token_model * target, bool translated) {
    if (opt.path.empty()) {
        return nullptr;
    }
    const char * why =
        target == nullptr || target->eyes == nullptr
            ? "--mmproj-draft needs a target in this process that sees; give --mmproj as well"
        : draft.head ? "a draft head reads the target's states, which contain the pictures; leave out --mmproj-draft"
        : translated ? "a draft with another vocabulary than the target's reads no pictures; leave out "
                       "--mmproj-draft"
                     : nullptr;
    if (why != nullptr) {
        throw error(error_kind::bad_value, why);
    }
    auto eyes = load_projector(opt, draft);
    target->eyes->read_for(eyes);
    return eyes;
}

} // namespace duo
