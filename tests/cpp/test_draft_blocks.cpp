// A draft that guesses in blocks, message by message: what is left of an earlier block when the next one comes.
#include "other_side.h"

using namespace duo;
using namespace duo_test;

namespace {

constexpr int32_t n_levels = 4;

std::vector<candidate> after(const language & lang, std::span<const token_id> text) {
    auto all = lang.after(text);
    language::choose(all, {.temp = 0.0f}, text);
    return all;
}

// Children of node i are exactly what the last block says of their level; what it does not say has no chance.
void check_children(const other_side<scripted_head> & t, const language & lang, int32_t i_node, int32_t & n_dropped) {
    const token_tree &    tree = t.tree();
    std::vector<token_id> own  = t.text();
    auto                  all  = after(lang, own);
    for (int32_t level = 0; level < tree.at(i_node).depth; ++level) {
        own.push_back(all.front().token);
        all = after(lang, own);
    }
    int32_t n_proposed = 0;
    for (int32_t i = tree.first_child(i_node); i >= 0; i = tree.at(i).next) {
        const auto it =
            std::find_if(all.begin(), all.end(), [&](const candidate & c) { return c.token == tree.at(i).token; });
        if (it != all.end()) {
            CHECK(std::abs(tree.at(i).logp - it->logp) < 1e-6, "as the last block says");
            ++n_proposed;
        } else {
            CHECK(tree.at(i).logp < -60.0f, "dropped");
            ++n_dropped;
        }
    }
    CHECK(n_proposed > 0);
}

} // namespace

TEST(a_later_block_replaces_an_earlier_one) {
    int32_t n_revised = 0, n_dropped = 0;
    for (uint64_t seed = 1; seed < 20; ++seed) {
        const language            lang{.seed = seed};
        other_side<scripted_head> t({.lang = lang, .n_levels = n_levels, .n_batch = 16}, n_levels);
        int32_t                   n_inner = 0;
        check_children(t, lang, 0, n_dropped);
        for (const int32_t rank : {0, 1, 0, 0, 2, 0}) {
            t.commit(rank);
            check_children(t, lang, 0, n_dropped);
            // The best path is of the last block alone.
            for (int32_t i = t.tree().likeliest_child(0), level = 1; i >= 0; ++level) {
                if (t.tree().first_child(i) >= 0) {
                    CHECK(level < n_levels, "no deeper than a block");
                    check_children(t, lang, i, n_dropped);
                    ++n_inner;
                }
                i = t.tree().likeliest_child(i);
            }
        }
        CHECK(n_inner > 12, std::to_string(n_inner));
        n_revised += t.n_revised;
    }
    CHECK(n_revised > 100, std::to_string(n_revised));
    CHECK(n_dropped > 20, std::to_string(n_dropped));
}
