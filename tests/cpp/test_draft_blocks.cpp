// A draft that guesses in blocks, message by message: what is left of an earlier block when the next one comes.
#include <thread>

#include "core/draft_worker.h"
#include "core/mirror_tree.h"
#include "scripted_head.h"

using namespace duo;
using namespace duo_test;

namespace {

constexpr int32_t n_levels = 4;

// The target's side of one text.
class other_side {
  public:
    explicit other_side(const behaviour & b) : head_(b), worker_(head_, wires_), lang_(b.lang), agree_(b.agree) {
        wires_.features = std::make_unique<feature_ring>(n_text_state, 64);
        req_.prompt     = {3, 1, 2, 4, 5};
        req_.id         = request_node(1);
        req_.sampling   = {.temp = 0.0f};
        text_           = req_.prompt;
        mirror_.begin(req_.id, text_);
        thread_ = std::thread([this] { worker_.run(); });
        send({.what = verdict_msg::kind::begin, .req = &req_});
        send_features(0, int32_t(text_.size()) - 1);
        send({.what = verdict_msg::kind::orders});
        take_nodes();
    }
    other_side(const other_side &)             = delete;
    other_side & operator=(const other_side &) = delete;
    ~other_side() {
        wires_.verdicts.close();
        thread_.join();
    }

    // The token after the root is the root's i-th child.
    void commit(int32_t i) {
        const token_id token = child(i).token;
        send_features(int32_t(text_.size()) - 1, 1);
        const node_id accepted = mirror_.name_of(0);
        text_.push_back(token);
        CHECK(mirror_.commit(0, token, text_), "it was a node");
        send({.what = verdict_msg::kind::verdict, .accepted = accepted, .token = token});
        take_nodes();
    }

    // Children of node i are exactly what the last block says of their level; what it does not say has no chance.
    void check_children(int32_t i_node) {
        std::vector<token_id> own = text_;
        auto                  all = after(own);
        for (int32_t level = 0; level < mirror_.tree().at(i_node).depth; ++level) {
            own.push_back(all.front().token);
            all = after(own);
        }
        int32_t n_proposed = 0;
        for (int32_t i = tree().first_child(i_node); i >= 0; i = tree().at(i).next) {
            const auto it = std::find_if(all.begin(), all.end(),
                                         [&](const candidate & c) { return c.token == tree().at(i).token; });
            if (it != all.end()) {
                CHECK(std::abs(tree().at(i).logp - it->logp) < 1e-6, "as the last block says");
                ++n_proposed;
            } else {
                CHECK(tree().at(i).logp < -60.0f, "dropped");
                ++n_dropped;
            }
        }
        CHECK(n_proposed > 0);
    }

    [[nodiscard]] const token_tree & tree() const { return mirror_.tree(); }

    int32_t n_revised = 0;
    int32_t n_dropped = 0;

  private:
    [[nodiscard]] std::vector<candidate> after(std::span<const token_id> text) const {
        auto all = lang_.after(text, agree_);
        language::choose(all, {.temp = 0.0f}, text);
        return all;
    }

    [[nodiscard]] const token_tree::node & child(int32_t rank) const {
        int32_t i = tree().first_child(0);
        for (; rank > 0; --rank) {
            i = tree().at(i).next;
        }
        return tree().at(i);
    }

    void send(verdict_msg v) {
        v.n_ahead      = n_levels;
        v.n_branch     = 8;
        v.branch_price = 50;
        wires_.verdicts.push(v);
    }

    void send_features(int32_t pos, int32_t n) {
        for (int32_t p = pos; p < pos + n; ++p) {
            const std::span<const token_id> before(text_.data(), size_t(p) + 1);
            write_state(wires_.features->add(before.back()), before.size(), hash_of(before));
        }
        wires_.verdicts.push({.what = verdict_msg::kind::features, .pos = pos, .n_rows = n});
    }

    // Until the block of the present root is complete.
    void take_nodes() {
        int32_t n_grown = 0;
        for (node_msg msg; n_grown == 0 || !mirror_.paused();) {
            if (!wires_.nodes.try_pop(msg)) {
                std::this_thread::yield();
                continue;
            }
            if (msg.what == node_msg::kind::pause) {
                mirror_.pause(n_grown > 0 ? msg.parent : no_node); // the first one comes before the states
                continue;
            }
            REQUIRE(msg.what == node_msg::kind::node, "the draft did not fail");
            const auto news = mirror_.insert(msg, text_);
            n_revised += news == mirror_tree::news::revised ? 1 : 0;
            n_grown += news == mirror_tree::news::grown || news == mirror_tree::news::revised ? 1 : 0;
        }
    }

    wires                 wires_;
    scripted_head         head_;
    draft_worker          worker_;
    const language        lang_;
    const double          agree_;
    mirror_tree           mirror_;
    request               req_;
    std::vector<token_id> text_;
    std::thread           thread_;
};

} // namespace

TEST(a_later_block_replaces_an_earlier_one) {
    int32_t n_revised = 0, n_dropped = 0;
    for (uint64_t seed = 1; seed < 20; ++seed) {
        other_side t({.lang = {.seed = seed}, .n_levels = n_levels, .n_batch = 16});
        int32_t    n_inner = 0;
        t.check_children(0);
        for (const int32_t rank : {0, 1, 0, 0, 2, 0}) {
            t.commit(rank);
            t.check_children(0);
            // The best path is of the last block alone.
            for (int32_t i = t.tree().first_child(0), level = 1; i >= 0; ++level) {
                int32_t best = i;
                for (int32_t k = i; k >= 0; k = t.tree().at(k).next) {
                    best = t.tree().at(k).logp > t.tree().at(best).logp ? k : best;
                }
                i = t.tree().first_child(best);
                if (i >= 0) {
                    CHECK(level < n_levels, "no deeper than a block");
                    t.check_children(best);
                    ++n_inner;
                }
            }
        }
        CHECK(n_inner > 12, std::to_string(n_inner));
        n_revised += t.n_revised;
        n_dropped += t.n_dropped;
    }
    CHECK(n_revised > 100, std::to_string(n_revised));
    CHECK(n_dropped > 20, std::to_string(n_dropped));
}
