#include "target_pass.h"

#include <algorithm>
#include <numeric>

#include "base/clock.h"

namespace duo {

void target_pass::clear() {
    slots_.clear();
    rows_.clear();
}

void target_pass::begin(verify_slot & s) {
    slots_.assign(1, &s);
    rows_.clear();
}

size_t target_pass::n_base_rows() const {
    return std::accumulate(slots_.begin(), slots_.end(), size_t(0), [](size_t n, const verify_slot * s) {
        return n + (s->n_read > 0 ? s->n_read : s->n_missing());
    });
}

void target_pass::set_rows(verify_slot & s, size_t n_read) {
    const pass_tree & tree          = s.text.guesses().tree();
    const auto &      tokens        = s.text.context().tokens();
    const auto        n_before      = tokens.size();
    s.n_read                        = n_read;
    s.i_first                       = rows_.size();
    s.i_root                        = rows_.size() + s.n_missing() - 1;
    s.n_before                      = s.cached.size();
    const int32_t        n_branches = n_read > 0 ? 1 : tree.n_branches();
    const size_t         end        = n_read > 0 ? s.cached.size() + n_read : n_before;
    const picture_span * seen       = s.text.req().pictures.at(int32_t(s.cached.size()));
    for (size_t pos = s.cached.size(); pos < end; ++pos) {
        rows_.push_back({.token      = tokens[pos],
                         .pos        = int32_t(pos),
                         .branch     = s.first_branch,
                         .n_branches = n_branches,
                         .output     = pos + 1 == n_before,
                         .picture    = seen == nullptr ? nullptr : seen->content.get()});
    }
    if (n_read > 0) {
        return;
    }
    for (const auto & r : tree.rows()) {
        const auto & nd = tree.nodes()[size_t(r.i_node)];
        rows_.push_back({.token      = nd.token,
                         .pos        = int32_t(n_before) - 1 + nd.depth,
                         .branch     = s.first_branch + r.branch,
                         .n_branches = r.n_branches,
                         .output     = true});
    }
}

bool target_pass::fork_branches() {
    bool forked = false;
    for (const verify_slot * s : slots_) {
        for (int32_t b = 1; s->n_read == 0 && b < s->text.guesses().tree().n_branches(); ++b) {
            model_.fork(s->first_branch, s->first_branch + b, int32_t(s->cached.size()));
            forked = true;
        }
    }
    return forked;
}

void target_pass::drop_branches() {
    for (const verify_slot * s : slots_) {
        for (int32_t b = 1; s->n_read == 0 && b < s->text.guesses().tree().n_branches(); ++b) {
            model_.rollback(s->first_branch + b, 0);
        }
    }
}

decode_status target_pass::evaluate(int32_t n_threads) {
    const int64_t t_forks = now_us();
    const bool    forked  = fork_branches();
    model_.use_threads(n_threads);
    model_.use_scales(slots_.front()->scales); // those of all its texts (scale_turns.h)
    const decode_status status = timed_decode();
    drop_branches();
    branches_us_ = forked ? t0_ - t_forks + now_us() - t1_ : 0;
    return status;
}

decode_status target_pass::timed_decode() {
    t0_ = now_us();
    wires_.verify_busy.begin(t0_);
    const auto book = [&] {
        t1_ = now_us();
        wires_.verify_busy.end(t1_);
        for (verify_slot * s : slots_) {
            s->text.count_elsewhere(t1_ - t0_, 0);
        }
    };
    try {
        const decode_status status =
            model_.decode(rows_, slots_.size() == 1 ? slots_.front()->text.req().cancelled : never_stop);
        book();
        return status;
    } catch (...) {
        book(); // or the clock would run on
        throw;
    }
}

bool target_pass::is_typical() const {
    return std::none_of(slots_.begin(), slots_.end(), [](const verify_slot * s) {
        return s->n_read > 0 || !s->text.us_since_verdict(0).has_value();
    });
}

} // namespace duo
