// A model with random delays. Tests use it to provoke many interleavings of the two workers, on which the text must not
// depend.
#pragma once

#include <chrono>
#include <random>
#include <thread>

#include "model/token_model.h"

namespace duo {

class delayed_model : public token_model {
  public:
    // Sleeps 0 to max_us before each decode, most sleeps short. The inner model must outlive this one.
    delayed_model(token_model & inner, int32_t max_us, uint64_t seed) : inner_(inner), max_us_(max_us), random_(seed) {}

    const model_facts & facts() const override { return inner_.facts(); }

    decode_status decode(std::span<const row> rows, const std::atomic<bool> & stop) override {
        const double u = std::uniform_real_distribution<double>(0.0, 1.0)(random_);
        std::this_thread::sleep_for(std::chrono::microseconds(int64_t(u * u * u * max_us_)));
        return inner_.decode(rows, stop);
    }

    [[nodiscard]] bool expects() const override { return inner_.expects(); }
    void               expect(std::span<const token_id> tokens) override { inner_.expect(tokens); }
    void               use_threads(int32_t n) override { inner_.use_threads(n); }
    void               use_scales(const lora_scales & scales) override { inner_.use_scales(scales); }

    int32_t candidates(int32_t i_row, const sampling_params & sampling, std::span<const token_id> text,
                       std::span<candidate> out) override {
        return inner_.candidates(i_row, sampling, text, out);
    }

    void chances(int32_t i_row, const sampling_params & sampling, std::span<const token_id> text,
                 std::vector<candidate> & out) override {
        inner_.chances(i_row, sampling, text, out);
    }

    std::span<float> row_logits(int32_t i_row, const sampling_params * grammar_of,
                                std::span<const token_id> text) override {
        return inner_.row_logits(i_row, grammar_of, text);
    }

    float logprobs(int32_t i_row, token_id token, std::span<candidate> out) override {
        return inner_.logprobs(i_row, token, out);
    }

    head_states & states() override { return inner_.states(); }

    bool        rollback(int32_t branch, int32_t pos) override { return inner_.rollback(branch, pos); }
    bool        shift(int32_t branch, int32_t pos, int32_t n) override { return inner_.shift(branch, pos, n); }
    int32_t     take_back(int32_t branch, int32_t pos) override { return inner_.take_back(branch, pos); }
    void        mark(int32_t branch) override { inner_.mark(branch); }
    int64_t     mark_bytes() const override { return inner_.mark_bytes(); }
    int32_t     n_undo_together(int32_t n_texts) const override { return inner_.n_undo_together(n_texts); }
    void        fork(int32_t from, int32_t to, int32_t pos) override { inner_.fork(from, to, pos); }
    int32_t     n_held(int32_t branch) const override { return inner_.n_held(branch); }
    std::string save(int32_t branch) const override { return inner_.save(branch); }
    int64_t     saved_bytes(int32_t branch) const override { return inner_.saved_bytes(branch); }
    void        restore(int32_t branch, std::span<const char> saved) override { inner_.restore(branch, saved); }
    bool        is_end(token_id token) const override { return inner_.is_end(token); }
    std::string piece(token_id token) const override { return inner_.piece(token); }

  private:
    token_model &   inner_;
    int32_t         max_us_;
    std::mt19937_64 random_;
};

} // namespace duo
