// The draft's tree and the target's mirror of it, with messages that are late in both directions, against a reference
// that knows the whole text in front of every node ever made.
#include <deque>
#include <map>

#include "check.h"
#include "random.h"
#include "tree/mirror_tree.h"

using namespace duo;
using namespace duo_test;

namespace {

using tokens = std::vector<token_id>;

class simulation {
  public:
    explicit simulation(uint64_t seed) : dice_(seed) {}

    void run(int n_requests, int n_steps) {
        for (int r = 0; r < n_requests; ++r) {
            begin();
            for (int k = 0; k < n_steps; ++k) {
                step();
            }
            if (dice_.chance(0.5)) {
                drain();
            }
            verdicts_.clear(); // the next request begins with the old one's nodes still on their way
        }
    }

    int n_hits   = 0;
    int n_misses = 0;
    int n_stale  = 0;
    int n_named  = 0;
    int n_wrong  = 0;

  private:
    void begin() {
        text_.assign(1 + dice_.below(5), 0);
        for (token_id & t : text_) {
            t = token_id(dice_.below(3));
        }
        const node_id id = request_node(++n_requests_);
        mirror_.begin(id, text_);
        arrived_.clear();
        draft_text_.assign(text_.begin(), text_.end() - 1);
        draft_.reset(id, no_token);
        sequence_[id] = draft_text_;
        first_id_     = n_ids_ + 1;
        draft_commit(text_.back());
        p_hit_  = 0.1 * dice_.between(0, 10);
        p_late_ = 0.1 * dice_.between(1, 9);
    }

    void step() {
        const uint32_t what = dice_.below(10);
        if (what < 4) {
            draft_grow();
        } else if (what < 5) {
            commit();
        } else if (what < 8) {
            if (dice_.chance(p_late_) && !nodes_.empty()) {
                read_node();
            }
        } else if (dice_.chance(p_late_) && !verdicts_.empty()) {
            read_verdict();
        }
        check_mirror();
    }

    // As draft_text does it.
    void draft_commit(token_id token) {
        draft_text_.push_back(token);
        const int32_t i = draft_.child(0, token);
        if (i >= 0) {
            draft_.re_root(i);
            return;
        }
        const node_id up = draft_.root().id;
        draft_.reset(++n_ids_, token);
        send({.guess = false, .id = n_ids_, .parent = up, .token = token});
    }

    void draft_grow() {
        if (dice_.chance(0.05)) {
            nodes_.push_back({.what = node_msg::kind::pause, .parent = draft_.root().id});
            return;
        }
        // The newest node more often than others: chains with a few branches.
        const auto i = dice_.chance(0.6) ? draft_.size() - 1 : int32_t(dice_.below(uint32_t(draft_.size())));
        const auto t = token_id(dice_.below(3));
        if (draft_.child(i, t) < 0) {
            const node_id parent = draft_.at(i).id;
            draft_.insert(++n_ids_, parent, t, -0.5f);
            send({.id = n_ids_, .parent = parent, .token = t});
        }
    }

    void send(const node_msg & msg) {
        tokens s = sequence_.at(msg.parent);
        s.push_back(msg.token);
        sequence_[msg.id] = s;
        nodes_.push_back(msg);
    }

    void commit() {
        const auto i     = int32_t(dice_.below(uint32_t(mirror_.tree().size())));
        auto       token = token_id(dice_.below(3));
        if (dice_.chance(p_hit_) && mirror_.tree().first_child(i) >= 0) {
            token = mirror_.tree().at(mirror_.tree().first_child(i)).token;
        }
        const node_id name = mirror_.name_of(i);
        mirror_.tree().path_to(i, text_);
        if (name != no_node) {
            CHECK_EQ(sequence_.at(name), text_);
        } else {
            CHECK_EQ(i, 0);
        }
        text_.push_back(token);
        bool known = false;
        for (const node_id id : arrived_) {
            known = known || sequence_.at(id) == text_;
        }
        CHECK_EQ(mirror_.commit(i, token, text_), known);
        CHECK(!mirror_.paused());
        ++(known ? n_hits : n_misses);
        verdicts_.push_back({.accepted = name, .token = token});
    }

    void read_verdict() {
        const verdict_msg v = verdicts_.front();
        verdicts_.pop_front();
        const int32_t i = v.accepted == no_node ? 0 : draft_.find(v.accepted);
        REQUIRE(i >= 0, "the draft knows every node that a verdict names");
        draft_.path_to(i, draft_text_);
        draft_.re_root(i);
        draft_commit(v.token);
        REQUIRE(draft_text_.size() <= text_.size() &&
                std::equal(draft_text_.begin(), draft_text_.end(), text_.begin()));
    }

    void read_node() {
        const node_msg msg = nodes_.front();
        nodes_.pop_front();
        const tokens & s     = sequence_.at(msg.what == node_msg::kind::pause ? msg.parent : msg.id);
        const size_t   n     = std::min(s.size(), text_.size());
        const bool     ours  = msg.id >= first_id_ || msg.what == node_msg::kind::pause;
        const bool     right = ours && std::equal(s.begin(), s.begin() + std::ptrdiff_t(n), text_.begin());
        if (msg.what == node_msg::kind::pause) {
            const bool was = mirror_.paused();
            mirror_.pause(msg.parent);
            CHECK_EQ(mirror_.paused(), was || (s == text_ && msg.parent >= first_id_));
            return;
        }
        const auto got = mirror_.insert(msg, text_);
        if (!right) {
            CHECK(got == mirror_tree::news::stale || got == mirror_tree::news::guess_wrong);
            if (got == mirror_tree::news::guess_wrong) {
                // Only the last token is wrong, at a committed position.
                CHECK(ours && s.size() <= text_.size() && std::equal(s.begin(), s.end() - 1, text_.begin()));
                ++n_wrong;
            } else {
                ++n_stale;
            }
        } else if (s.size() <= text_.size()) {
            CHECK_EQ(got, mirror_tree::news::named_right);
            ++n_named;
        } else {
            CHECK_EQ(got, mirror_tree::news::grown);
        }
        if (ours) {
            arrived_.push_back(msg.id);
        }
    }

    void check_mirror() {
        const token_tree & tree = mirror_.tree();
        CHECK_EQ(tree.root().token, text_.back());
        int32_t n_below    = 0;
        bool    root_known = false;
        for (const node_id id : arrived_) {
            const tokens & s = sequence_.at(id);
            if (s.size() >= text_.size() && std::equal(text_.begin(), text_.end(), s.begin())) {
                root_known = root_known || s.size() == text_.size();
                n_below += s.size() > text_.size() ? 1 : 0;
            }
        }
        CHECK_EQ(mirror_.named(), root_known);
        CHECK_EQ(tree.size(), 1 + n_below);
        for (int32_t i = 1; i < tree.size(); ++i) {
            tokens s = text_;
            tree.path_to(i, s);
            CHECK_EQ(s, sequence_.at(tree.at(i).id));
        }
    }

    // With nothing on its way any more, both sides hold the same tree.
    void drain() {
        while (!nodes_.empty() || !verdicts_.empty()) {
            if (!verdicts_.empty() && (nodes_.empty() || dice_.chance(0.5))) {
                read_verdict();
            } else {
                read_node();
            }
            check_mirror();
        }
        CHECK_EQ(draft_text_, text_);
        CHECK(mirror_.named());
        REQUIRE_EQ(mirror_.tree().size(), draft_.size());
        for (int32_t i = 0; i < draft_.size(); ++i) {
            CHECK_EQ(mirror_.tree().at(i).id, draft_.at(i).id);
            CHECK_EQ(mirror_.tree().at(i).depth, draft_.at(i).depth);
        }
    }

    dice                      dice_;
    double                    p_hit_  = 0.5;
    double                    p_late_ = 0.5;
    tokens                    text_;
    mirror_tree               mirror_;
    token_tree                draft_;
    tokens                    draft_text_;
    node_id                   n_ids_      = 0;
    node_id                   first_id_   = 0; // of this request
    uint64_t                  n_requests_ = 0;
    std::deque<node_msg>      nodes_;
    std::deque<verdict_msg>   verdicts_;
    std::vector<node_id>      arrived_;
    std::map<node_id, tokens> sequence_; // all text up to and including that node
};

} // namespace

TEST(mirror_random_delays) {
    int n_hits = 0, n_misses = 0, n_stale = 0, n_named = 0, n_wrong = 0;
    for (uint64_t seed = 0; seed < 1500; ++seed) {
        simulation s(seed);
        s.run(4, 120);
        n_hits += s.n_hits;
        n_misses += s.n_misses;
        n_stale += s.n_stale;
        n_named += s.n_named;
        n_wrong += s.n_wrong;
    }
    // Every case came up often.
    for (const int n : {n_hits, n_misses, n_stale, n_named, n_wrong}) {
        CHECK(n > 1000, std::to_string(n));
    }
}

TEST(mirror_late_chain) {
    // The draft guessed 1 2 3; the target, that had seen nothing, committed 1, 2, 9 by itself.
    std::vector<token_id> text{5};
    mirror_tree           m;
    m.begin(request_node(1), text);
    for (const token_id t : {1, 2, 9}) {
        CHECK_EQ(m.name_of(0), no_node);
        text.push_back(t);
        CHECK(!m.commit(0, t, text));
    }
    using news = mirror_tree::news;
    CHECK_EQ(m.insert({.id = 1, .parent = request_node(1), .token = 5}, text), news::named_right);
    CHECK_EQ(m.insert({.id = 2, .parent = 1, .token = 1}, text), news::named_right);
    CHECK_EQ(m.insert({.id = 3, .parent = 2, .token = 2}, text), news::named_right);
    CHECK(!m.named());
    CHECK_EQ(m.insert({.id = 4, .parent = 3, .token = 3}, text), news::guess_wrong);
    CHECK_EQ(m.insert({.id = 5, .parent = 4, .token = 3}, text), news::stale);
    CHECK_EQ(m.insert({.guess = false, .id = 6, .parent = 3, .token = 9}, text), news::named_right);
    CHECK(m.named());
    CHECK_EQ(m.insert({.id = 7, .parent = 6, .token = 4}, text), news::grown);
    CHECK_EQ(m.name_of(1), node_id(7));
}
