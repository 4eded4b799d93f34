#include "scale_turns.h"

#include <algorithm>
#include <utility>

namespace duo {

const std::vector<verify_slot *> & scale_turns::choose(const std::vector<verify_slot *> & texts) {
    const auto is_now = [this](const verify_slot * s) { return s->scales == now_; };
    if (std::ranges::all_of(texts, [&](const verify_slot * s) { return s->scales == texts.front()->scales; })) {
        now_    = texts.front()->scales;
        n_left_ = n_passes;
        return texts;
    }
    if (n_left_ <= 0 || std::ranges::none_of(texts, is_now)) {
        const auto waited = [&](const verify_slot * s) { return std::pair(is_now(s), s->n_turn); };
        now_              = lora_scales((*std::ranges::min_element(texts, {}, waited))->scales);
        n_left_           = n_passes;
    }
    const bool reads = std::ranges::any_of(texts, [](const verify_slot * s) { return s->n_missing() > n_short; });
    n_left_          = std::min(n_left_, reads ? n_passes_long : n_passes) - 1;
    chosen_.clear();
    for (verify_slot * s : texts) {
        s->n_read = 0;
        if (is_now(s)) {
            chosen_.push_back(s);
        }
    }
    return chosen_;
}

} // namespace duo
