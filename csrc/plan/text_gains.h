// What a draft has saved earlier texts. Each text counts as one, however long it was: texts differ in how well they
// can be guessed, and the last one alone says little of the next.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace duo {

class text_gains {
  public:
    // The text so far has ended, and another one begins.
    void begin_text();
    // A pass of the text, with the draft at work. plain_us: of a pass without it; 0: unknown.
    void on_pass(int32_t n_tokens, double us, double plain_us);
    void on_pass_without(double us) { us_without_ += us; }

    // False: no text has shown anything yet.
    [[nodiscard]] bool known() const { return n_known_ > 0; }
    // A draft will probably save time. False: it will not, or nothing is known.
    [[nodiscard]] bool promise() const;
    // Without a draft, so many tokens could be written in the time that it probably saves over n_tokens. Below 0: it
    // costs time.
    [[nodiscard]] double saved_tokens(int32_t n_tokens) const;
    // Since a draft last worked, in all texts.
    [[nodiscard]] double us_without() const { return us_without_; }

  private:
    std::array<double, 8> shares_{}; // of the last texts
    size_t                n_known_    = 0;
    int32_t               n_passes_   = 0; // of the text so far
    double                us_         = 0.0;
    double                plain_us_   = 0.0; // that as many tokens take without a draft
    double                us_without_ = 0.0;
};

} // namespace duo
