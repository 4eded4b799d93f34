// Checks messages from another process before a worker sees them. A hostile peer must not make a worker crash, hang, or
// use ever more memory.
#pragma once

#include "base/messages.h"
#include "text/request.h"
#include "wires/message_limits.h"

namespace duo {

// Each function throws duo::error for messages that no peer of the same version would send.
void check_node(const node_msg & n, int32_t n_vocab);
void check_verdict(const verdict_msg & v);
void check_text(const text_params & t);

} // namespace duo
