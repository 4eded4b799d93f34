// libllama's own samplers in an order that the caller chooses. duo's sampler has llama.cpp's default order only.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <llama.h>

#include "model_weights.h"
#include "text/sampling.h"
#include "text/token_hook.h"

namespace duo {

// One text. Belongs to the target's thread. What it leaves of a row is chosen from as it is: see chosen_from().
class ordered_samplers : public token_hook {
  public:
    // names: of duo's options (--samplers); each has its parameters from `sampling`. Throws duo::error.
    // The weights must live while it is asked.
    ordered_samplers(const model_weights & weights, const std::vector<std::string> & names,
                     const sampling_params & sampling);

    bool on_row(std::span<const token_id> text, std::span<float> logits) override;
    bool refused() override { return true; }
    void reconsider(std::span<const token_id> text, std::span<float> logits) override;

  private:
    struct chain_free {
        void operator()(llama_sampler * s) const { llama_sampler_free(s); }
    };

    const llama_vocab *                        vocab_;
    const sampling_params                      sampling_;
    std::unique_ptr<llama_sampler, chain_free> chain_;
    size_t                                     n_seen_ = 0; // tokens of the text
    std::vector<llama_token_data>              data_;       // scratch: a row
};

// How the target chooses from what the samplers have left: nothing is filtered any more.
sampling_params chosen_from(sampling_params sampling);

} // namespace duo
