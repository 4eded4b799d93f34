#include "model.h"

namespace duo {

namespace {

model_facts facts_of(const model_weights & weights, model_decoder * decoder) {
    model_facts f{.n_vocab    = weights.n_vocab(),
                  .n_proposed = decoder != nullptr ? decoder->n_proposed() : weights.n_vocab(),
                  .n_features = weights.n_features(),
                  .n_inputs   = weights.n_inputs(),
                  .n_state    = weights.n_state(),
                  .n_levels   = weights.n_levels()};
    if (decoder != nullptr) {
        const context_shape & shape = decoder->context().shape();
        f.n_ctx                     = shape.n_ctx;
        f.n_batch                   = shape.n_batch;
        f.n_branch                  = shape.n_branch;
        f.n_cells                   = int32_t(llama_n_ctx(decoder->context().get())) - 1;
        f.undo                      = decoder->cache().undo();
        f.n_undo                    = decoder->cache().n_undo();
    }
    return f;
}

} // namespace

llama_token_model::llama_token_model(std::shared_ptr<const model_weights> weights, const llama_token_model * target,
                                     std::shared_ptr<projector> sees)
    : weights_(std::move(weights)), vocabulary(weights_->model, weights_->options.path), eyes(std::move(sees)) {
    if (!weights_->options.vocab_only) {
        decoder_ = model_decoder::make(*weights_, target == nullptr ? nullptr : target->decoder_->context().get());
        experts_ = decoder_->context().experts();
        decoder_->use(eyes);
        sampler_ = std::make_unique<row_sampler>(*weights_, *decoder_);
    }
    facts_ = facts_of(*weights_, decoder_.get());
}

} // namespace duo
