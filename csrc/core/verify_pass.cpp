// The pass itself: verify, walk, emit. The loop around it is in verify_worker.cpp.
#include <algorithm>
#include <stdexcept>

#include "verify_worker.h"

namespace duo {

namespace {
constexpr int32_t n_telling = 16; // rows of a prompt whose time says what a row takes
} // namespace

// One target pass: what is left of the prompt, what was accepted beside the best path, the root, and the chosen nodes.
void verify_worker::verify(const plan & p) {
    const auto n_before   = text_.size();
    const auto i_root     = int32_t(n_before - 1 - cached_.size());
    const auto n_branches = tree_.n_branches();
    rows_.clear();
    for (size_t pos = cached_.size(); pos < n_before; ++pos) {
        rows_.push_back(
            {.token = text_[pos], .pos = int32_t(pos), .n_branches = n_branches, .output = pos + 1 == n_before});
    }
    for (const auto & r : tree_.rows()) {
        const auto & nd = tree_.nodes()[size_t(r.i_node)];
        rows_.push_back({.token      = nd.token,
                         .pos        = int32_t(n_before) - 1 + nd.depth,
                         .branch     = r.branch,
                         .n_branches = r.n_branches,
                         .output     = true});
    }
    const int64_t t_forks = now_us();
    for (int32_t b = 1; b < n_branches; ++b) {
        model_.fork(0, b, int32_t(cached_.size()));
    }
    const int32_t n_threads = drafting() ? planner_.threads().target : 0;
    model_.use_threads(n_threads);

    int64_t             t0     = 0;
    int64_t             t1     = 0;
    const decode_status status = timed_decode(t0, t1);
    // The walk needs no more than the candidates; side branches go before it, so that they are never in the way.
    for (int32_t b = 1; b < n_branches; ++b) {
        model_.rollback(b, 0);
    }
    if (status == decode_status::stopped) {
        return;
    }
    if (req_->stats.n_passes == 0) {
        on_prompt(t1);
    } else if (t1 > t0) {
        // With a part of the cores it is no pass by itself, whatever the draft did.
        const int64_t beside = n_threads > 0 ? t1 - t0 : wires_.draft_busy.at(t1) - wires_.draft_busy.at(t0);
        // A tree's branches are made and dropped outside the pass, but they are a part of its price.
        const int64_t branches = n_branches > 1 ? t0 - t_forks + now_us() - t1 : 0;
        planner_.profile().on_pass(int32_t(rows_.size()), t1 - t0 + branches, double(beside) / double(t1 - t0));
    }
    cached_.assign(text_.begin(), text_.end());
    for (size_t i = 0; i < tree_.rows().size() && tree_.rows()[i].branch == 0; ++i) {
        cached_.push_back(tree_.at_row(int32_t(i)).token);
    }

    take_nodes(); // what the draft prepared meanwhile: a hit is known as one, and its subtree is there for the next
                  // plan
    const verify_stats before        = req_->stats;
    const int32_t      depth         = tree_.depth();
    const stance       stance_before = planner_.stance_now();
    walk(i_root, p);

    if (wires_.tracing) {
        wires_.verify_trace.try_push({.what       = trace_event::kind::verify,
                                      .hit        = req_->stats.n_hits > before.n_hits,
                                      .slot       = req_->slot,
                                      .n_rows     = int32_t(rows_.size()),
                                      .n_drafted  = int32_t(tree_.rows().size()),
                                      .n_accepted = req_->stats.n_accepted - before.n_accepted,
                                      .depth      = depth,
                                      .n_branch   = planner_.n_branch(),
                                      .expected   = float(p.expected),
                                      .stance_now = stance_before,
                                      .t0_us      = t0,
                                      .t1_us      = t1});
    }
    if (finish_ == finish_reason::none) {
        trim_cache(n_before);
    }
}

void verify_worker::on_prompt(int64_t t_end) {
    verify_stats & st   = req_->stats;
    st.prompt_us        = t_end - st.t_begin_us;
    const int32_t n_new = st.n_prompt - st.n_prompt_cached;
    if (n_new >= n_telling) {
        row_us_ = double(st.prompt_us) / n_new;
    }
}

// Leaves in the cache what is text. Nodes accepted beside the best path are not: their rows stand behind a gap, and
// attention adds in the order of the cells, so keeping them would cost equal bits. The next pass evaluates them again.
void verify_worker::trim_cache(size_t n_before) {
    size_t n_kept = n_before;
    for (const int32_t i : accepted_) {
        n_kept += tree_.rows()[size_t(i)].branch == 0 ? 1 : 0;
    }
    req_->stats.n_side += n_kept < n_before + accepted_.size() ? 1 : 0;
    if (n_kept < cached_.size()) {
        if (!model_.rollback(0, int32_t(n_kept))) {
            throw std::runtime_error("the target's cache cannot be rolled back; run without a draft");
        }
        cached_.resize(n_kept);
    }
}

// Follows the tree as far as the target agrees, then takes the target's own token; tells the draft.
void verify_worker::walk(int32_t i_first_row, const plan & p) {
    verify_stats & st = req_->stats;
    ++st.n_passes;
    ++st.n_passes_in[size_t(planner_.stance_now())];
    const auto n_rows = int32_t(tree_.rows().size());
    st.n_verifications += n_rows == 0 ? 0 : 1;
    st.n_drafted += n_rows;
    for (int32_t i = 0; i < n_rows; ++i) {
        st.n_ngram += tree_.at_row(i).i_node < 0 ? 1 : 0;
        st.n_path += tree_.rows()[size_t(i)].branch == 0 ? 1 : 0;
    }

    accepted_.clear();
    bool    ngram_right = true; // the text's own continuation, so far
    int32_t i_row       = -1;   // deepest accepted row; -1: the root
    for (int32_t level = 0;; ++level) {
        candidate     chosen;
        const int32_t i_logits = i_first_row + 1 + i_row;
        if (model_.candidates(i_logits, req_->sampling, text_, std::span(&chosen, 1)) != 1) {
            if (req_->sampling.grammar.empty()) {
                throw std::runtime_error("the filters left no candidate token");
            }
            finish_ = finish_reason::stop; // the grammar is complete, and no token for the end may be chosen
            return;
        }
        learn_from(i_row < 0 ? 0 : tree_.at_row(i_row).i_node, level, chosen.token);
        if (ngram_right && n_proposals_ > 0 && size_t(level) < proposals_[0].tokens.size()) {
            ngram_right = proposals_[0].tokens[size_t(level)] == chosen.token;
            planner_.profile().guesses().on_ngram(level, ngram_right);
        }
        st.n_tested_at[size_t(std::min(level, n_draft_cap - 1))] += tree_.has_child_row(i_row) ? 1 : 0;
        const int32_t next = tree_.child_row(i_row, chosen.token);
        if (next >= 0) {
            ++st.n_accepted;
            ++st.n_accepted_at[size_t(level)];
            st.n_ngram_accepted += tree_.at_row(next).i_node < 0 ? 1 : 0;
            st.n_path_accepted += tree_.rows()[size_t(next)].branch == 0 ? 1 : 0;
            accepted_.push_back(next);
        }
        text_.push_back(chosen.token);
        if (!emit(chosen.token, next >= 0, i_logits)) {
            return;
        }
        if (next < 0) {
            commit(p);
            return;
        }
        i_row = next;
    }
}

// Guesses below an accepted node of the drafted tree, verified or not: the target's choice says which was right.
void verify_worker::learn_from(int32_t i_node, int32_t level, token_id chosen) {
    const token_tree & tree = mirror_.tree();
    for (int32_t i = i_node < 0 ? -1 : tree.first_child(i_node); i >= 0; i = tree.at(i).next) {
        const auto & nd = tree.at(i);
        planner_.profile().guesses().on_child(nd.logp, nd.token == chosen);
        if (nd.rank == 0) {
            planner_.profile().guesses().on_guess(level, nd.token == chosen, !was_hit_);
        }
    }
}

// The text has grown by the accepted nodes and one token more. The draft knows its own nodes by their ids; what came
// from n-grams it is told token by token.
void verify_worker::commit(const plan & p) {
    verify_stats & st    = req_->stats;
    const auto     n_new = int32_t(accepted_.size()) + 1;
    const int64_t  now   = now_us();
    if (t_verdict_ != 0) {
        planner_.on_verdict(n_new, p.expected, now - t_verdict_, drafting());
        st.overhead_us += now - t_verdict_ - t_elsewhere_;
        st.n_after_hit += was_hit_ ? 1 : 0;
        (was_hit_ ? st.n_tokens_after_hit : st.n_tokens_after_miss) += n_new;
    }
    t_verdict_   = now;
    t_elsewhere_ = 0;
    ngrams_.add(text_);

    const size_t n_before = text_.size() - size_t(n_new);
    int32_t      i_node   = 0;
    size_t       n_known  = 0; // leading accepted rows that are nodes of the drafted tree
    while (n_known < accepted_.size() && tree_.at_row(accepted_[n_known]).i_node >= 0) {
        i_node = tree_.at_row(accepted_[n_known++]).i_node;
    }
    for (size_t n = n_before + n_known + 1; n <= text_.size(); ++n, i_node = 0) {
        const node_id accepted = mirror_.name_of(i_node);
        was_hit_               = mirror_.commit(i_node, text_[n - 1], std::span(text_).first(n));
        tell_draft({.slot = req_->slot, .accepted = accepted, .token = text_[n - 1]});
    }
    st.n_hits += was_hit_ ? 1 : 0;
    wires_.chunks.wake();
}

// One committed token on its way to the text. False: it was the last.
bool verify_worker::emit(token_id token, bool from_draft, int32_t i_row) {
    verify_stats & st = req_->stats;
    chunk_msg      chunk{.from_draft = from_draft, .slot = req_->slot, .token = token, .t_us = now_us()};
    if (++st.n_predicted == 1) {
        st.t_first_us = chunk.t_us;
    }
    size_t n_drop = 0;
    if (model_.is_end(token)) {
        chunk.hidden = true;
        finish_      = finish_reason::stop;
    } else {
        const auto r = stops_.add(model_.piece(token));
        chunk.n_hold = int32_t(r.stopped ? r.n_drop : r.n_hold);
        n_drop       = r.n_drop;
        if (r.stopped) {
            finish_ = finish_reason::stop;
        } else if (st.n_predicted == req_->n_predict || n_text() >= model_.n_ctx()) {
            finish_ = finish_reason::length;
        }
    }
    if (req_->n_logprobs >= 0) {
        best_.resize(size_t(req_->n_logprobs));
        chunk.logp = model_.logprobs(i_row, token, best_);
    }
    wires_.chunks.push_quiet(chunk); // the reader is woken once for all of a pass, after the draft
    if (req_->n_logprobs >= 0) {
        for (const candidate & c : best_) {
            wires_.chunks.push_quiet(
                {.what = chunk_msg::kind::logprob, .slot = req_->slot, .token = c.token, .logp = c.logp});
        }
    }
    if (finish_ == finish_reason::none) {
        return true;
    }
    n_drop_ = int32_t(n_drop);
    return false;
}

} // namespace duo
