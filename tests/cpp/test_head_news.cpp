// A draft head that evaluates a root again, from the target's states, and thinks otherwise of what follows: what the
// target is told of the guesses that it has.
#include <map>

#include "other_side.h"

using namespace duo;
using namespace duo_test;

namespace {

constexpr double shares[] = {0.5, 0.2, 0.1}; // and 0.2 for all others

// Proposes three of six tokens, other ones in each step.
class fickle_head : public scripted_head {
  public:
    using scripted_head::scripted_head;

    int32_t candidates(int32_t, const sampling_params &, std::span<const token_id> text,
                       std::span<candidate> out) override {
        const uint64_t h    = hash64(hash_of(text) ^ uint64_t(n_decoded.load()));
        auto &         last = last_[hash_of(text)];
        last.clear();
        for (size_t k = 0; k < 3; ++k) {
            last.push_back({.token = token_id(1 + (h + k) % 6), .logp = float(std::log(shares[k]))});
        }
        const size_t n = std::min(out.size(), last.size());
        std::copy_n(last.begin(), n, out.begin());
        return int32_t(n);
    }

    // What it said last of that text.
    const std::vector<candidate> & last(std::span<const token_id> text) const { return last_.at(hash_of(text)); }

  private:
    std::map<uint64_t, std::vector<candidate>> last_;
};

} // namespace

TEST(other_guesses_lose_their_chance) {
    for (const int16_t sharpness : {-1200, 0, 1200}) {
        int32_t n_new = 0, n_other = 0;
        for (uint64_t seed = 1; seed < 20; ++seed) {
            other_side<fickle_head> t({.lang = {.seed = seed}}, 3, sharpness);
            for (const int32_t rank : {0, 1, 0, 2, 0, 0}) {
                t.commit(rank);
                const token_tree & tree = t.tree();
                const auto &       said = t.head().last(t.text());
                for (const candidate & c : said) {
                    const int32_t i = tree.child(0, c.token);
                    REQUIRE(i > 0, "it was sent");
                    CHECK_EQ(tree.at(i).logp, c.logp, "as the model says it, whatever the orders");
                    CHECK_EQ(tree.at(i).age, 0);
                    ++n_new;
                }
                for (int32_t i = tree.first_child(0); i >= 0; i = tree.at(i).next) {
                    const bool other = std::none_of(said.begin(), said.end(),
                                                    [&](const candidate & c) { return c.token == tree.at(i).token; });
                    CHECK(!other || tree.at(i).logp <= said.back().logp, std::to_string(std::exp(tree.at(i).logp)));
                    n_other += other ? 1 : 0;
                }
                CHECK_EQ(tree.at(tree.likeliest_child(0)).token, said.front().token);
            }
            CHECK(t.n_revised > 0);
            CHECK_EQ(t.n_counted(), int64_t(t.n_grown), "a better estimate is no new node");
        }
        CHECK(n_new > 300 && n_other > 30, std::to_string(n_other));
    }
}
