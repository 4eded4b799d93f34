#include "projector.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/freed_by.h"
#include "device.h"
#include "log.h"
#include "text_runs.h"

#ifdef DUO_HAS_MTMD
#include <mtmd-helper.h>
#include <mtmd.h>
#endif

namespace duo {

#ifdef DUO_HAS_MTMD

namespace {

using chunk_ptr  = std::unique_ptr<mtmd_input_chunk, freed_by<mtmd_input_chunk_free>>;
using chunks_ptr = std::unique_ptr<mtmd_input_chunks, freed_by<mtmd_input_chunks_free>>;

class projected_picture : public picture {
  public:
    explicit projected_picture(const mtmd_input_chunk * c) : chunk_(mtmd_input_chunk_copy(c)) {}

    [[nodiscard]] int32_t n_pos() const override { return mtmd_input_chunk_get_n_pos(chunk_.get()); }
    [[nodiscard]] int32_t n_rows() const { return int32_t(mtmd_input_chunk_get_n_tokens(chunk_.get())); }
    [[nodiscard]] const mtmd_input_chunk * chunk() const { return chunk_.get(); }

  private:
    chunk_ptr chunk_;
};

// splitmix64's finaliser
uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

uint64_t hash_of(std::string_view bytes, uint64_t h) {
    for (const char c : bytes) {
        h = mix(h + 0x9e3779b97f4a7c15ull + uint8_t(c));
    }
    return h;
}

// What decides the picture's rows beside its pixels: its size in rows, and its number among others where that counts.
std::string description_of(const mtmd_input_chunk * c) {
    size_t n = 0;
    mtmd_input_chunk_save(c, nullptr, 0, &n);
    std::string all(n, '\0');
    mtmd_input_chunk_save(c, all.data(), all.size(), &n);
    return all;
}

uint64_t header_hash(const std::string & path) {
    const std::unique_ptr<std::FILE, freed_by<std::fclose>> file(std::fopen(path.c_str(), "rb"));
    std::string                                             head(size_t(1) << 16, '\0');
    head.resize(file ? std::fread(head.data(), 1, head.size(), file.get()) : 0);
    return hash_of(head, 0);
}

} // namespace

void projector::closer::operator()(mtmd_context * c) const {
    mtmd_free(c);
}

projector::projector(const projector_options & opt, const model_weights & model)
    : options_(opt), model_(model.model), n_embd_(llama_model_n_embd_inp(model.model.get())),
      name_(header_hash(opt.path)) {
    mtmd_helper_log_set(log_callback(), nullptr);
    mtmd_context_params params = mtmd_context_params_default();
    params.use_gpu             = opt.offload;
    params.device              = opt.device.empty() ? nullptr : resolve_devices({opt.device}).front();
    params.print_timings       = false;
    params.n_threads           = std::max(1, opt.n_threads);
    params.image_min_tokens    = opt.min_rows;
    params.image_max_tokens    = opt.max_rows;
    log_clear_errors();
    context_.reset(mtmd_init_from_file(opt.path.c_str(), model.model.get(), params));
    if (!context_) {
        throw error(error_kind::bad_value, "the projector " + opt.path + " could not be loaded for " +
                                               model.options.path + log_reason() + "; give " +
                                               (model.is_draft ? "--mmproj-draft" : "--mmproj") + " another file");
    }
}

projector::~projector() = default;

bool projector::sees() const {
    return mtmd_support_vision(context_.get());
}

int32_t projector::rate() const {
    return std::max(0, mtmd_get_audio_sample_rate(context_.get()));
}

seen_prompt projector::read(std::span<const prompt_part> parts, bool add_special, bool parse_special) const {
    std::vector<mtmd_input_text>         texts;
    std::vector<mtmd_input_part>         all;
    std::vector<const mtmd_input_part *> places;
    size_t                               longest = 0;
    texts.reserve(parts.size());
    all.reserve(parts.size());
    for (const prompt_part & part : parts) {
        if (const auto * shown = std::get_if<std::shared_ptr<const media>>(&part)) {
            all.push_back({.text = nullptr, .bitmap = (*shown)->bitmap()});
        } else {
            const auto & text = std::get<std::string>(part);
            longest           = std::max(longest, longest_run(text));
            texts.push_back({text.data(), text.size(), add_special, parse_special});
            all.push_back({.text = &texts.back(), .bitmap = nullptr});
        }
        places.push_back(&all.back());
    }
    const chunks_ptr chunks(mtmd_input_chunks_init());
    with_stack_for(longest, [&] {
        log_clear_errors(); // of this thread
        if (mtmd_tokenize_from_parts(context_.get(), chunks.get(), places.data(), places.size(), add_special) != 0) {
            throw error(error_kind::bad_value,
                        "the pictures or sound could not be prepared for the model" + log_reason());
        }
    });
    seen_prompt                     out;
    std::vector<picture_span>       spans;
    std::map<std::string, uint64_t> n_slices; // so far, of each picture
    for (size_t i = 0; i < mtmd_input_chunks_size(chunks.get()); ++i) {
        const mtmd_input_chunk * c = mtmd_input_chunks_get(chunks.get(), i);
        if (mtmd_input_chunk_get_type(c) == MTMD_INPUT_CHUNK_TYPE_TEXT) {
            size_t       n      = 0;
            const auto * tokens = mtmd_input_chunk_get_tokens_text(c, &n);
            out.tokens.insert(out.tokens.end(), tokens, tokens + n);
            continue;
        }
        const auto              content = std::make_shared<projected_picture>(c);
        const char *            id      = mtmd_input_chunk_get_id(c); // SHA-256 of the file, in hexadecimal digits
        const std::string       sha     = id == nullptr ? "" : id;
        const uint64_t          rest    = hash_of(description_of(c), name_ + mix(++n_slices[sha]));
        std::array<uint64_t, 4> parts_of_id{};
        for (size_t k = 0; k < parts_of_id.size() && sha.size() == 64; ++k) {
            parts_of_id[k] = std::strtoull(sha.substr(16 * k, 16).c_str(), nullptr, 16);
        }
        spans.push_back({.first = int32_t(out.tokens.size()), .n_rows = content->n_rows(), .content = content});
        for (int32_t row = 0; row < content->n_rows(); ++row) {
            const uint64_t h = mix(mix(rest + uint64_t(row)) ^ parts_of_id[size_t(row) % parts_of_id.size()]);
            out.tokens.push_back(first_picture_id | token_id(h & (first_picture_id - 1)));
        }
    }
    std::shared_ptr<const seen_prompt> for_draft;
    if (of_draft_ != nullptr && !spans.empty()) {
        try {
            for_draft = std::make_shared<const seen_prompt>(of_draft_->read(parts, add_special, parse_special));
        } catch (const error &) { // it does not hear, or cannot divide a picture: the draft reads the words alone
        }
    }
    out.pictures = picture_spans(std::move(spans), std::move(for_draft));
    return out;
}

encoded_picture projector::encode(const picture & p, llama_pos first) {
    const auto * chunk = static_cast<const projected_picture &>(p).chunk();
    log_clear_errors();
    if (mtmd_encode_chunk(context_.get(), chunk) != 0) {
        throw error("a picture could not be encoded with " + options_.path + log_reason());
    }
    encoded_picture out{.rows        = mtmd_get_output_embd(context_.get()),
                        .n_embd      = n_embd_,
                        .n_rows      = int32_t(mtmd_input_chunk_get_n_tokens(chunk)),
                        .pos         = {},
                        .n_parts     = mtmd_decode_use_mrope(context_.get()) ? 4 : 1,
                        .looks_ahead = mtmd_decode_use_non_causal(context_.get(), chunk)};
    const auto      n = size_t(out.n_rows);
    if (!std::all_of(out.rows, out.rows + n * size_t(n_embd_), [](float x) { return std::isfinite(x); })) {
        throw error("the projector " + options_.path + " computes NaN or infinity for a picture; choose another file");
    }
    const mtmd_image_tokens * image = mtmd_input_chunk_get_tokens_image(chunk);
    out.pos.resize(n * size_t(out.n_parts));
    for (size_t i = 0; i < n; ++i) { // as in mtmd-helper-common.h (decode_embd_batch)
        if (out.n_parts == 1 || image == nullptr) {
            for (int32_t part = 0; part < out.n_parts; ++part) {
                out.pos[size_t(part) * n + i] = first + llama_pos(i);
            }
            continue;
        }
        const mtmd_decoder_pos at = mtmd_image_tokens_get_decoder_pos(image, first, i);
        out.pos[i]                = llama_pos(at.t);
        out.pos[n + i]            = llama_pos(at.y);
        out.pos[2 * n + i]        = llama_pos(at.x);
        out.pos[3 * n + i]        = llama_pos(at.z);
    }
    return out;
}

#else

void projector::closer::operator()(mtmd_context *) const {
}

projector::projector(const projector_options &, const model_weights &) : n_embd_(0), name_(0) {
    throw error(error_kind::bad_value, "duo was built with a llama.cpp that has no libmtmd, so it sees no pictures; "
                                       "build it with llama-cpp-python's, or leave out --mmproj");
}

projector::~projector() = default;

bool projector::sees() const {
    return false;
}

int32_t projector::rate() const {
    return 0;
}

seen_prompt projector::read(std::span<const prompt_part>, bool, bool) const {
    return {};
}

encoded_picture projector::encode(const picture &, llama_pos) {
    return {};
}

#endif

} // namespace duo
