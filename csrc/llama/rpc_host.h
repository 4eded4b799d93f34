// GGML RPC, both ends, as libggml-rpc brings it. Its client aborts the process where the server is lost or was never
// there, so rpc_connect() belongs into a process that may die: a child, or one whose only use is that server.
#pragma once

#include <string>
#include <vector>

namespace duo {

// Serves devices at "a.b.c.d:port" for ever. No devices: every local GPU, else the CPU; cache_dir empty: no cache of
// weights. Throws duo::error for an unknown device, without libggml-rpc, and where the library gives up.
void rpc_serve(const std::string & endpoint, const std::string & cache_dir, int n_threads,
               const std::vector<std::string> & devices);

// Registers the devices of the server at "host:port" and returns their names ("RPC0", ...). Waits for ever for a server
// that says nothing. Throws duo::error without libggml-rpc, and for a server without devices.
std::vector<std::string> rpc_connect(const std::string & endpoint);

} // namespace duo
