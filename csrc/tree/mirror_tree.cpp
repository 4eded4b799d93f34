#include "mirror_tree.h"

namespace duo {

void mirror_tree::begin(node_id id, std::span<const token_id> text) {
    tree_.reset(no_node, text.back());
    named_id_ = id;
    n_text_   = text.size();
    n_named_  = n_text_ - 1;
    paused_   = false;
}

mirror_tree::news mirror_tree::insert(const node_msg & msg, std::span<const token_id> text) {
    if (named()) {
        if (const int32_t i = tree_.find(msg.id); i > 0) {
            tree_.revise(i, msg.logp, msg.age);
            return news::revised;
        }
        if (tree_.size() >= n_most) {
            return news::stale;
        }
        return tree_.insert(msg.id, msg.parent, msg.token, msg.logp, msg.age) < 0 ? news::stale : news::grown;
    }
    if (msg.parent != named_id_) {
        return news::stale;
    }
    if (msg.token != text[n_named_]) {
        return news::guess_wrong;
    }
    named_id_ = msg.id;
    ++n_named_;
    if (named()) {
        tree_.name_root(named_id_);
    }
    return news::named_right;
}

bool mirror_tree::lacks(int32_t i, token_id token) const {
    bool any = false;
    for (int32_t k = i + 1; k < tree_.size() && !any; ++k) {
        any = tree_.at(k).parent == i;
    }
    return named() && any && tree_.child(i, token) < 0;
}

bool mirror_tree::commit(int32_t i_accepted, token_id token, std::span<const token_id> text) {
    n_text_ = text.size();
    paused_ = false;
    if (name_of(i_accepted) != no_node) {
        named_id_ = tree_.at(i_accepted).id;
        n_named_  = n_text_ - 1;
    }
    const int32_t i_next = tree_.child(i_accepted, token);
    if (i_next < 0) {
        tree_.reset(no_node, token);
        return false;
    }
    tree_.re_root(i_next);
    named_id_ = tree_.root().id;
    n_named_  = n_text_;
    return true;
}

} // namespace duo
