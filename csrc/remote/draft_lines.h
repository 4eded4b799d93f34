// What the links to a draft elsewhere share: the outer ends of the rings, which have one reader and one writer each.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

#include "rings/sorted_mail.h"
#include "wires/wires.h"

namespace duo {

struct draft_lines {
    // n_texts: as many as the pipeline's. n_vocab: the target's.
    draft_lines(std::shared_ptr<wires> w, int32_t n_texts, int32_t n_vocab)
        : ends(std::move(w)), n_vocab(n_vocab), verdicts(ends->verdicts, n_texts) {}

    const std::shared_ptr<wires> ends;
    const int32_t                n_vocab;
    sorted_mail<verdict_msg>     verdicts;    // under ends->link_mutex
    std::mutex                   nodes_mutex; // held by the writer of nodes
};

} // namespace duo
