// Loads the weights of a model: decides where each matrix goes and what computes with it, and reads the file.
#pragma once

#include <memory>

#include "model_weights.h"

namespace duo {

// target: of a draft head that has no embedding or output of its own. Throws duo::error.
std::shared_ptr<const model_weights> load_weights(const model_options & opt, bool is_draft,
                                                  const model_weights * target = nullptr);

// The MTP layers of a target that was loaded with load_mtp, as its draft. opt: of the draft; what is about weights is
// the target's. Throws duo::error.
std::shared_ptr<const model_weights> mtp_weights(const model_options & opt, const model_weights & target);

} // namespace duo
