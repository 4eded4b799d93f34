// What comes from another process is looked at before a worker sees it: a hostile peer must not crash, hang or grow it.
#pragma once

#include "messages.h"
#include "request.h"

namespace duo {

constexpr size_t n_text_most = size_t(1) << 20; // tokens of a text that a host takes on

// Each throws duo::error for what no peer of the same version would send.
void check_node(const node_msg & n, int32_t n_vocab);
void check_verdict(const verdict_msg & v);
void check_text(const text_params & t);

} // namespace duo
