#include "embedder.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "base/error.h"
#include "context_shape.h"
#include "control_vector.h"
#include "cpu/team.h"
#include "log.h"
#include "lora.h"
#include "weights_loader.h"

namespace duo {

namespace {

constexpr auto *     stopped_text = "the texts were not read to their end: this Duo was stopped";
constexpr int32_t    n_texts_most = 64;                                      // of a pass
constexpr std::array poolings     = {"none", "mean", "cls", "last", "rank"}; // in the order of llama_pooling_type

enum llama_pooling_type pooling_named(const std::string & name) {
    if (name.empty()) {
        return LLAMA_POOLING_TYPE_UNSPECIFIED;
    }
    const auto found = std::find(poolings.begin(), poolings.end(), name);
    if (found == poolings.end()) {
        throw error(error_kind::bad_value, "unknown pooling " + name + "; choose from none, mean, cls, last, rank");
    }
    return static_cast<enum llama_pooling_type>(found - poolings.begin());
}

} // namespace

embedder::embedder(const model_options & opt, const std::string & pooling) : weights_(load_weights(opt, false)) {
    create(pooling);
    const bool ranks = llama_pooling_type(context_.get()) == LLAMA_POOLING_TYPE_RANK;
    n_out_           = ranks ? std::max(1, int32_t(llama_model_n_cls_out(weights_->model.get())))
                             : llama_model_n_embd_out(weights_->model.get());
}

void embedder::create(const std::string & pooling) {
    const model_options & opt   = weights_->options;
    const int32_t         n_ctx = weights_->n_ctx();
    // A vector is made of all of a text at once, so a text has to fit into one pass.
    context_shape shape = context_shape(*weights_, false, false);
    shape.n_batch = shape.n_ubatch = std::min(n_ctx, opt.n_batch);
    shape.n_cells                  = std::max(n_ctx, shape.n_batch);
    llama_context_params params    = context_params(*weights_, shape, false);
    params.n_batch                 = uint32_t(shape.n_batch);
    // libllama has an output for each of the texts.
    params.n_seq_max      = uint32_t(std::min({n_texts_most, int32_t(llama_max_parallel_sequences()), shape.n_batch}));
    params.embeddings     = true;
    params.pooling_type   = pooling_named(pooling);
    params.abort_callback = [](void * stopped) { return static_cast<std::atomic<bool> *>(stopped)->load(); };
    params.abort_callback_data = &stopped_;
    context_                   = new_context(*weights_, params, "a context for embeddings", "-c or -b");
    use_loras(context_.get(), weights_->loras, loaded_scales(opt));
    use_control_vectors(context_.get(), weights_->model.get(), opt);
}

std::string embedder::pooling() const {
    const auto i = size_t(llama_pooling_type(context_.get()));
    return i < poolings.size() ? poolings[i] : "none";
}

std::string embedder::rerank_template() const {
    const char * text = llama_model_chat_template(weights_->model.get(), "rerank");
    return text == nullptr ? "" : text;
}

// As llama-server's format_prompt_rerank (tools/server/server-common.cpp).
std::vector<std::vector<token_id>> embedder::around_pair() const {
    const llama_vocab * vocab = weights_->vocab();
    const auto          one   = [](bool wanted, token_id token) {
        return wanted && token >= 0 ? std::vector<token_id>{token} : std::vector<token_id>{};
    };
    const token_id        eos    = llama_vocab_eos(vocab) >= 0 ? llama_vocab_eos(vocab) : llama_vocab_sep(vocab);
    std::vector<token_id> before = one(llama_vocab_get_add_bos(vocab), llama_vocab_bos(vocab));
    std::vector<token_id> behind = one(llama_vocab_get_add_eos(vocab), eos);
    std::vector<token_id> middle = behind;
    for (const token_id t : one(llama_vocab_get_add_sep(vocab), llama_vocab_sep(vocab))) {
        middle.push_back(t);
    }
    return {before, middle, behind};
}

void embedder::check(std::span<const std::vector<token_id>> texts) const {
    for (const auto & text : texts) {
        if (text.empty()) {
            throw error(error_kind::bad_value, "a text has no tokens; give some words");
        }
        if (int32_t(text.size()) > n_most()) {
            throw error(error_kind::bad_value, "a text of " + std::to_string(text.size()) +
                                                   " tokens is too large for a pass; give 1 to " +
                                                   std::to_string(n_most()) + ", or raise -b and -c");
        }
        for (const token_id t : text) {
            if (t < 0 || t >= weights_->n_vocab()) {
                throw error(error_kind::bad_value, "token " + std::to_string(t) + " is outside the vocabulary of " +
                                                       std::to_string(weights_->n_vocab()) + " tokens");
            }
        }
    }
}

std::vector<size_t> embedder::passes(std::span<const std::vector<token_id>> texts) const {
    check(texts);
    const auto          n_seq = size_t(llama_n_seq_max(context_.get()));
    std::vector<size_t> ends;
    for (size_t first = 0, end = 0; first < texts.size(); first = end) {
        size_t n_rows = 0;
        while (end < texts.size() && end - first < n_seq && n_rows + texts[end].size() <= size_t(n_most())) {
            n_rows += texts[end++].size();
        }
        ends.push_back(end);
    }
    return ends;
}

std::vector<std::vector<float>> embedder::embed(std::span<const std::vector<token_id>> texts,
                                                const std::function<bool()> &          goes_on) {
    const std::vector<size_t>         ends = passes(texts);
    const std::lock_guard<std::mutex> lock(mutex_);
    std::vector<std::vector<float>>   out;
    size_t                            first = 0;
    for (const size_t end : ends) {
        if (stopped_ || !goes_on()) {
            throw error(error_kind::cancelled, stopped_text);
        }
        evaluate(texts.subspan(first, end - first), out);
        first = end;
    }
    return out;
}

// One pass over texts that fit into it.
void embedder::evaluate(std::span<const std::vector<token_id>> texts, std::vector<std::vector<float>> & out) {
    llama_context *             context = context_.get();
    std::vector<token_id>       tokens;
    std::vector<llama_pos>      positions;
    std::vector<llama_seq_id>   ids(texts.size());
    std::vector<llama_seq_id *> id_of;
    std::iota(ids.begin(), ids.end(), 0);
    for (size_t i = 0; i < texts.size(); ++i) {
        for (size_t pos = 0; pos < texts[i].size(); ++pos) {
            tokens.push_back(texts[i][pos]);
            positions.push_back(llama_pos(pos));
            id_of.push_back(&ids[i]);
        }
    }
    const size_t         n_rows = tokens.size();
    std::vector<int32_t> n_ids(n_rows, 1);
    std::vector<int8_t>  outputs(n_rows, 1);
    llama_batch          batch{};
    batch.n_tokens = int32_t(n_rows);
    batch.token    = tokens.data();
    batch.pos      = positions.data();
    batch.n_seq_id = n_ids.data();
    batch.seq_id   = id_of.data();
    batch.logits   = outputs.data();

    const auto what = [&] {
        return "evaluating " + std::to_string(n_rows) + " tokens with " + weights_->options.path + " failed";
    };
    const cpu::team_size team(std::max(1, weights_->options.n_threads_batch));
    const int32_t        rc = context_.get_deleter().guarded(weights_->options.path, what, [&] {
        if (llama_memory_t memory = llama_get_memory(context); memory != nullptr) {
            llama_memory_clear(memory, true);
        }
        const int32_t status = llama_decode(context, batch); // with an encoder alone, as BERT's, it encodes
        llama_synchronize(context);
        return status;
    });
    weights_->check_files();
    if (rc != 0) {
        throw stopped_ ? error(error_kind::cancelled, stopped_text) : error(what() + log_reason());
    }
    const bool   pools = llama_pooling_type(context) != LLAMA_POOLING_TYPE_NONE;
    const size_t n_out = pools ? texts.size() : n_rows;
    for (size_t i = 0; i < n_out; ++i) {
        const float * found =
            pools ? llama_get_embeddings_seq(context, llama_seq_id(i)) : llama_get_embeddings_ith(context, int32_t(i));
        if (found == nullptr) {
            throw error(error_kind::bad_value, weights_->options.path + " makes no vectors" + log_reason() +
                                                   "; load a model for embeddings, or choose another --pooling");
        }
        out.emplace_back(found, found + n_out_);
    }
}

} // namespace duo
