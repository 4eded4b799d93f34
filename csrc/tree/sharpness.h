// How sure a draft is of its guesses, and how sure it should be. Its chances are a softmax that is too flat for one
// pair of models and too steep for another. To a suitable power, the chances of siblings and of what is left beside
// them say how often the target chooses each. The target fits that power to its choices, and the draft ranks its nodes
// by it.
#pragma once

#include <cstdint>
#include <span>

namespace duo {

class sharpness {
  public:
    static constexpr double  most_power = 4.0;  // and its inverse is the least one
    static constexpr int32_t most_order = 1387; // log of most_power, in 1/1000, rounded up

    // The target chose the i-th of these siblings, or none of them (-1). logp: what the draft said of them.
    void on_choice(std::span<const float> logp, int32_t i);

    [[nodiscard]] double  power() const { return power_; }
    [[nodiscard]] double  weight() const { return weight_; } // how much is known: as of so many telling choices
    [[nodiscard]] int16_t order() const;                     // as verdict_msg has it
    static double         power_of(int16_t order);

    // What was saved. Impossible numbers become possible ones.
    static sharpness restored(double power, double weight);

    // What the draft says of siblings, to that power. out: as many. A guess that was dropped stays so.
    static void apply(double power, std::span<const float> logp, std::span<float> out);

  private:
    double power_  = 1.0;
    double weight_ = 0.0;
};

} // namespace duo
