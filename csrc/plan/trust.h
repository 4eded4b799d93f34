// How far the draft's own estimates can be trusted along a path. With the greedy choice, the best of several likely
// tokens is right more often than its chance says; a draft of another training is right less often. So the chance that
// a best guess is right is taken to be a power of its estimate, and the power is fitted to what was counted.
#pragma once

namespace duo {

class trust {
  public:
    static constexpr double most_power  = 4.0;
    static constexpr double least_power = 1.0 / 32.0;

    // The draft gave its best guess this estimate (log of a chance, at most 0).
    void on_guess(double log_estimate, bool right);

    // Chance of being right = estimate to this power; of a path too, whose estimate is a product.
    [[nodiscard]] double power() const { return power_; }
    [[nodiscard]] double weight() const { return weight_; } // how much is known

    // The estimate of a path that is right with this chance, 0..1.
    [[nodiscard]] double estimate_for(double chance) const;

    // What was saved. Impossible numbers become possible ones.
    static trust restored(double power, double weight);

  private:
    double power_  = 1.0;
    double weight_ = 0.0;
};

} // namespace duo
