#include "client_drafts.h"

#include <algorithm>

namespace duo {

namespace {
constexpr float longest_believed_us = 6e7f; // of what a draft says of its step: a minute
}

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

// Of a client that is new nothing is known. The one that was not needed for the longest time is forgotten for it.
draft_memory & client_drafts::memory_of(uint64_t client) {
    auto at = others_.find(client);
    if (at == others_.end()) {
        if (others_.size() >= n_most) {
            others_.erase(
                std::ranges::min_element(others_, {}, [](const auto & entry) { return entry.second.n_asked; }));
        }
        at = others_.try_emplace(client).first;
    }
    at->second.n_asked = ++n_asked_;
    return at->second.memory;
}

void client_drafts::use_median(const std::vector<verify_slot *> & texts) {
    std::vector<std::pair<double, uint64_t>> drafts; // times of steps; each client has one vote
    for (const verify_slot * s : texts) {
        const uint64_t client = s->text.req().client;
        const auto     same   = [client](const auto & d) { return d.second == client; };
        if (s->for_draft && std::ranges::none_of(drafts, same)) {
            drafts.emplace_back(step_us(client), client);
        }
    }
    std::sort(drafts.begin(), drafts.end());
    const auto measured = std::ranges::find_if(drafts, [](const auto & d) { return d.first > 0.0; });
    if (measured != drafts.end()) {
        use(measured[(drafts.end() - measured - 1) / 2].second);
    }
}

double client_drafts::step_us(uint64_t client) const {
    if (client == used_) {
        return planner_.profile().draft().any_step_us();
    }
    const auto at = others_.find(client);
    return at == others_.end() ? 0.0 : at->second.memory.profile.any_step_us();
}

void client_drafts::on_step(const verify_slot & s, int32_t n_rows, float us, double shared) {
    us                    = std::min(us, longest_believed_us);
    const uint64_t client = s.text.req().client;
    if (client == used_) {
        planner_.profile().on_step(n_rows, us, shared);
    } else {
        memory_of(client).profile.on_step(n_rows, us, shared, planner_.profile().passes().n_passes());
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
    const auto at = others_.find(req.client);
    return at == others_.end() ? nothing_known : at->second.memory.profile.guesses[size_t(req.sampling.kind())];
}

} // namespace duo
