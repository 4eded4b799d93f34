#include "node_choice.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "next_picture.h"

namespace duo {

void node_choice::choose(draft_step & step) {
    step.clear();
    int32_t            n_free = texts_.n_free();
    const draft_text * seer   = reader_of_picture();
    was_picture_              = seer != nullptr;
    for (draft_text & t : texts_) {
        if (!texts_.wants_step(t) || (seer != nullptr ? &t != seer : next_picture(t.cache()) != nullptr)) {
            continue;
        }
        const int32_t n_block = t.cache().in_blocks() ? model_.facts().n_levels + 1 : 0;
        const auto    n_parts = int32_t(step.parts().size());
        if (n_parts > 0 && (n_parts + 1) * n_block > model_.facts().n_batch) {
            break; // the others have the next step
        }
        next_ = {.text = &t, .nodes = std::move(next_.nodes), .branches = std::move(next_.branches)};
        next_.branches.clear();
        t.frontier().choose(next_.nodes, n_free);
        if (next_.nodes.empty()) {
            sender_.pause(t);
            continue;
        }
        const int32_t n_rows = next_.reads() ? t.cache().n_missing() + n_block : int32_t(next_.nodes.size());
        if (n_rows > n_free) {
            n_free += texts_.make_room(t);
        }
        if (n_rows > n_free && (n_parts > 0 || texts_.shares_cache(t))) {
            sender_.pause(t);         // until the next verdict: the others may have ended by then
        } else if (n_rows > n_free) { // it has the cache for itself
            sender_.fail(t, "its cache is full; raise -cd/--ctx-size-draft");
        } else {
            n_free -= n_rows;
            step.add(next_);
        }
    }
    if (step.parts().size() > 1) {
        keep_what_pays(step);
    }
}

// The text that reads a picture in this step, which it has for itself. Null: none does. A picture takes long, so other
// texts have a step between two of them.
const draft_text * node_choice::reader_of_picture() const {
    const draft_text * first  = nullptr;
    bool               others = false;
    for (draft_text & t : texts_) {
        if (texts_.wants_step(t)) {
            const bool sees = next_picture(t.cache()) != nullptr;
            others          = others || !sees;
            first           = sees && first == nullptr ? &t : first;
        }
    }
    return others && was_picture_ ? nullptr : first;
}

// Of the nodes of several texts, those stay that bring more for their price than the better ones do on average. A root
// stays: nothing is known below it.
void node_choice::keep_what_pays(draft_step & step) const {
    std::vector<std::pair<double, size_t>> worths; // and the part
    double                                 worth = 0.0;
    double                                 price = 0.0;
    const std::span<draft_step::part>      parts = step.parts();
    for (size_t i = 0; i < parts.size(); ++i) {
        const draft_step::part & p = parts[i];
        if (p.reads()) {
            worth += 1.0;
            price += price == 0.0 ? 1.0 : double(p.text->orders().branch_price);
            continue;
        }
        for (const int32_t node : p.nodes) { // best first
            worths.emplace_back(std::exp(double(p.text->cache().tree().at(node).path)), i);
        }
    }
    std::stable_sort(worths.begin(), worths.end(), [](const auto & a, const auto & b) { return a.first > b.first; });
    std::vector<size_t> n_kept(parts.size(), 0);
    size_t              n_rows = 0;
    for (const auto & [more, i] : worths) {
        const double cost = double(parts[i].text->orders().branch_price);
        if ((price > 0.0 && more * price < worth * cost) || n_rows == size_t(model_.facts().n_batch)) {
            break;
        }
        price += price == 0.0 ? 1.0 : cost;
        worth += more;
        ++n_kept[i];
        ++n_rows;
    }
    for (size_t i = 0; i < parts.size(); ++i) {
        if (!parts[i].reads()) {
            parts[i].nodes.resize(n_kept[i]);
        }
    }
    step.drop_empty();
}

} // namespace duo
