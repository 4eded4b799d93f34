#include "client_drafts.h"

#include <algorithm>

namespace duo {

void client_drafts::use(uint64_t client) {
    if (client == used_) {
        return;
    }
    planner_.exchange_draft(memory_of(client));
    auto node  = others_.extract(client); // now it has what is known of the other one
    node.key() = used_;
    others_.insert(std::move(node));
    used_ = client;
}

// Of a client that is new nothing is known.
draft_memory & client_drafts::memory_of(uint64_t client) {
    if (const auto known = others_.find(client); known != others_.end()) {
        return known->second;
    }
    if (others_.size() >= n_most) {
        others_.erase(others_.begin());
    }
    return others_[client];
}

void client_drafts::use_median(const std::vector<verify_slot *> & texts) {
    std::vector<std::pair<double, uint64_t>> drafts; // times of steps
    for (const verify_slot * s : texts) {
        if (s->for_draft) {
            drafts.emplace_back(step_us(s->text.req().client), s->text.req().client);
        }
    }
    std::sort(drafts.begin(), drafts.end());
    if (!drafts.empty()) {
        use(drafts[(drafts.size() - 1) / 2].second);
    }
}

double client_drafts::step_us(uint64_t client) const {
    if (client == used_) {
        return planner_.profile().step_us(1, true);
    }
    const auto known = others_.find(client);
    return known == others_.end() ? 0.0 : known->second.profile.any_step_us();
}

void client_drafts::on_step(const verify_slot & s, int32_t n_rows, float us, double shared) {
    const uint64_t client = s.text.req().client;
    if (client == used_) {
        planner_.profile().on_step(n_rows, us, shared);
    } else {
        memory_of(client).profile.on_step(n_rows, us, shared, 0, planner_.profile().n_passes());
    }
}

guess_record & client_drafts::guesses_of(const verify_slot & s) {
    const request & req = s.text.req();
    return req.client == used_ ? planner_.profile().guesses(req.sampling.kind())
                               : memory_of(req.client).profile.guesses[size_t(req.sampling.kind())];
}

const guess_record & client_drafts::guesses_of(const verify_slot & s) const {
    static const guess_record nothing_known;
    const request &           req = s.text.req();
    if (req.client == used_) {
        return std::as_const(planner_).profile().guesses(req.sampling.kind());
    }
    const auto known = others_.find(req.client);
    return known == others_.end() ? nothing_known : known->second.profile.guesses[size_t(req.sampling.kind())];
}

} // namespace duo
