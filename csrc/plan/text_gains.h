// How much time a draft has saved in earlier texts. Each text counts once, however long it was: texts differ in how
// well they can be guessed, and the last one alone says little about the next.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace duo {

class text_gains {
  public:
    static constexpr size_t n_texts = 8;           // the last ones, which count
    static constexpr size_t n_saved = 1 + n_texts; // numbers of saved()

    // A text begins. If there was one before, it has ended.
    void begin_text();
    // A pass of the text, with the draft at work. plain_us: of a pass without it; 0: unknown.
    void on_pass(int32_t n_tokens, double us, double plain_us);
    void on_pass_without(double us) { us_without_ += us; }

    // False: no text has shown anything yet.
    [[nodiscard]] bool known() const { return n_known_ > 0; }
    // A draft will probably save time. False: it will not, or nothing is known.
    [[nodiscard]] bool promise() const;
    // Time that a draft probably saves over n_tokens, in passes without a draft. Below 0: it costs time.
    [[nodiscard]] double saved_passes(int32_t n_tokens) const;
    // Microseconds of passes since a draft last worked.
    [[nodiscard]] double us_without() const { return us_without_; }

    // What earlier texts have shown, as numbers of at least 0 for a file: how many texts, then 1 + the share of each.
    // restored() ignores impossible numbers.
    [[nodiscard]] std::array<double, n_saved> saved() const;
    static text_gains                         restored(std::span<const double, n_saved> numbers);

  private:
    std::array<double, n_texts> shares_{};           // of the time without a draft, that each text has saved
    size_t                      n_known_    = 0;     // texts so far
    bool                        has_read_   = false; // the text's first pass with the draft, and its reading, are over
    int32_t                     n_tokens_   = 0;     // of the text's later passes
    double                      us_         = 0.0;   // of these
    double                      plain_us_   = 0.0;   // that as many tokens take without a draft
    double                      us_without_ = 0.0;
};

} // namespace duo
