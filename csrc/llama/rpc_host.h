// GGML RPC, both ends, as libggml-rpc brings it. Its client ends the process where the server is lost or was never
// there, so rpc_connect() belongs into a process that may end: a child, or one whose only use is that server.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace duo {

// Serves devices at "a.b.c.d:port" for ever. No devices: every local GPU, else the CPU; cache_dir empty: no cache of
// weights. Throws duo::error for an unknown device, without libggml-rpc, and where the library gives up.
void rpc_serve(const std::string & endpoint, const std::string & cache_dir, int n_threads,
               const std::vector<std::string> & devices);

// Registers the devices of the server at "host:port" and returns their names ("RPC0", ...). From then on the process
// ends with one sentence and exit code 1 when the server is lost. Waits for ever for a server that says nothing. Throws
// duo::error without libggml-rpc, and for a server without devices.
std::vector<std::string> rpc_connect(const std::string & endpoint);

// Free and total bytes of one of those devices: asks its server, after everything that was asked of it before. From any
// thread. Throws duo::error for an unknown name.
std::pair<size_t, size_t> rpc_memory(const std::string & name);

} // namespace duo
