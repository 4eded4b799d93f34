// What the links to a target elsewhere share: the outer ends of the rings, which have one reader and one writer each.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "wires/node_mail.h"
#include "wires/wires.h"

namespace duo {

struct target_lines {
    // n_texts: as many as the pipeline's. n_vocab: the draft's, which is the text's here. n_ctx: the target's.
    target_lines(std::shared_ptr<wires> w, int32_t n_texts, int32_t n_vocab, int32_t n_ctx)
        : ends(std::move(w)), n_vocab(n_vocab), n_ctx(n_ctx), nodes(*ends, n_texts), requests(size_t(n_texts)) {}

    // The request for a text of that slot; null: none.
    request * next_request(int32_t slot) {
        for (request * r = nullptr; ends->requests.try_pop(r);) {
            requests[size_t(r->slot)] = r;
        }
        return std::exchange(requests[size_t(slot)], nullptr);
    }

    const std::shared_ptr<wires> ends;
    const int32_t                n_vocab;
    const int32_t                n_ctx;

    // Under ends->link_mutex, with the writing end of the verdicts.
    node_mail              nodes;
    std::vector<request *> requests; // by slot

    std::mutex chunks_mutex; // held by the writer of chunks
};

} // namespace duo
