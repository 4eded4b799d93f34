// The target's side of one text of a draft head, without a target: it tells the verdicts, and keeps the tree that the
// head tells.
#pragma once

#include <algorithm>
#include <memory>
#include <thread>
#include <vector>

#include "draft/draft_worker.h"
#include "scripted_head.h"
#include "tree/mirror_tree.h"

namespace duo_test {

// Head: a scripted_head.
template <typename Head> class other_side {
  public:
    // sharpness: what all orders say of it.
    explicit other_side(const behaviour & b, int32_t n_ahead, int16_t sharpness = 0)
        : head_(b), worker_(head_, wires_), n_ahead_(n_ahead), sharpness_(sharpness) {
        wires_.features = std::make_unique<duo::feature_ring>(n_text_state, 64);
        req_.prompt     = {3, 1, 2, 4, 5};
        req_.id         = duo::request_node(1);
        req_.sampling   = {.temp = 0.0f};
        text_           = req_.prompt;
        mirror_.begin(req_.id, text_);
        thread_ = std::thread([this] { worker_.run(); });
        send({.what = duo::verdict_msg::kind::begin, .req = &req_});
        send_features(0, int32_t(text_.size()) - 1);
        send({.what = duo::verdict_msg::kind::orders});
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
        const duo::node_id accepted = mirror_.name_of(0);
        text_.push_back(token);
        CHECK(mirror_.commit(0, token, text_), "it was a node");
        send({.what = duo::verdict_msg::kind::verdict, .accepted = accepted, .token = token});
        take_nodes();
    }

    [[nodiscard]] const duo::token_tree &       tree() const { return mirror_.tree(); }
    [[nodiscard]] const std::vector<token_id> & text() const { return text_; }
    [[nodiscard]] const Head &                  head() const { return head_; } // while the draft is paused
    [[nodiscard]] int64_t                       n_counted() const { return req_.draft->n_nodes.load(); }

    int32_t n_grown   = 0; // nodes of the tree
    int32_t n_revised = 0; // better estimates of them

  private:
    [[nodiscard]] const duo::token_tree::node & child(int32_t rank) const {
        int32_t i = tree().first_child(0);
        for (; rank > 0; --rank) {
            i = tree().at(i).next;
        }
        return tree().at(i);
    }

    void send(duo::verdict_msg v) {
        v.n_ahead      = int16_t(n_ahead_);
        v.n_branch     = 8;
        v.branch_price = 50;
        v.sharpness    = sharpness_;
        wires_.verdicts.push(v);
    }

    void send_features(int32_t pos, int32_t n) {
        for (int32_t p = pos; p < pos + n; ++p) {
            const std::span<const token_id> before(text_.data(), size_t(p) + 1);
            write_state(wires_.features->add(before.back()), before.size(), hash_of(before));
        }
        wires_.verdicts.push({.what = duo::verdict_msg::kind::features, .pos = pos, .n_rows = n});
    }

    // Until nothing more can be had of the present root.
    void take_nodes() {
        bool any = false;
        for (duo::node_msg msg; !any || !mirror_.paused();) {
            if (!wires_.nodes.try_pop(msg)) {
                std::this_thread::yield();
                continue;
            }
            if (msg.what == duo::node_msg::kind::pause) {
                mirror_.pause(any ? msg.parent : duo::no_node); // the first one comes before the states
                continue;
            }
            REQUIRE(msg.what == duo::node_msg::kind::node, "the draft did not fail");
            const auto news = mirror_.insert(msg, text_);
            n_revised += news == duo::mirror_tree::news::revised ? 1 : 0;
            n_grown += news == duo::mirror_tree::news::grown ? 1 : 0;
            any = any || news == duo::mirror_tree::news::grown || news == duo::mirror_tree::news::revised;
        }
    }

    duo::wires            wires_;
    Head                  head_;
    duo::draft_worker     worker_;
    const int32_t         n_ahead_;
    const int16_t         sharpness_;
    duo::mirror_tree      mirror_;
    duo::request          req_;
    std::vector<token_id> text_;
    std::thread           thread_;
};

} // namespace duo_test
