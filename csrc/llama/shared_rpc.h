// Target and draft on one RPC server. ggml-rpc remembers the last graph of a device for all contexts of a process
// (ggml-rpc.cpp, last_graph_uid), and a server forgets its graphs when any buffer is freed. So with two contexts in two
// threads a server may compute the wrong graph again, or has none and drops the connection, which ends the process.
#pragma once

#include "model_options.h"

namespace duo {

// Call this before the models load. If they share a server, contexts made from now on send each graph anew.
// Throws duo::error for an unknown device.
void prepare_shared_rpc(const model_options & target, const model_options & draft);

} // namespace duo
