// What the draft drew its guesses from, as the target knows it: for each node of the drafted tree whose children are
// draws.
#pragma once

#include <span>
#include <vector>

#include "acceptance.h"
#include "base/messages.h"

namespace duo {

// Belongs to the verify worker's thread.
class proposals {
  public:
    void begin() { sets_.clear(); }

    // Messages of a parent that is in the tree.
    void on_share(const node_msg & msg) {
        set * s = find(msg.parent);
        if (s == nullptr) {
            s = &sets_.emplace_back(set{.parent = msg.parent});
        }
        if (s->draws.empty() && s->shares.size() < acceptance::n_shares_most) {
            s->shares.push_back({msg.token, msg.logp});
        }
    }

    // A draw that comes after a gap is not used: the one in the gap had a token that this side does not know.
    void on_draw(const node_msg & msg) {
        set * s = find(msg.parent);
        if (s != nullptr && s->draws.size() == size_t(msg.rank)) {
            s->draws.push_back(msg.token);
        }
    }

    // Below the node with that id. Valid until the next message.
    [[nodiscard]] guesses_below below(node_id parent) {
        const set * s = find(parent);
        return s == nullptr ? guesses_below{} : guesses_below{.tokens = s->draws, .shares = s->shares};
    }

    // Forgets the nodes for which there(id) does not hold.
    template <typename There> void prune(There there) {
        std::erase_if(sets_, [&](const set & s) { return !there(s.parent); });
    }

  private:
    struct set {
        node_id                parent = no_node;
        std::vector<candidate> shares{};
        std::vector<token_id>  draws{};
    };

    set * find(node_id parent) {
        for (size_t i = sets_.size(); i-- > 0;) { // messages are mostly about the last one
            if (sets_[i].parent == parent) {
                return &sets_[i];
            }
        }
        return nullptr;
    }

    std::vector<set> sets_;
};

} // namespace duo
