// GGML RPC, both ends, with libggml-rpc. Its client ends the process if the server is lost or missing. So call
// rpc_connect() only in a process that may end: a child, or a process that only uses this server.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace duo {

// Serves devices at "a.b.c.d:port" for ever. No devices: every local GPU, or the CPU if there is none. cache_dir empty:
// no cache of weights. Throws duo::error for an unknown device, without libggml-rpc, and if the library gives up.
void rpc_serve(const std::string & endpoint, const std::string & cache_dir, int n_threads,
               const std::vector<std::string> & devices);

// Registers the devices of the server at "host:port" and returns their names ("RPC0", ...). From then on the process
// ends with one sentence and exit code 1 if the server is lost. Waits for ever if the server does not answer. Throws
// duo::error without libggml-rpc, and for a server without devices.
std::vector<std::string> rpc_connect(const std::string & endpoint);

// Free and total bytes of one of those devices. Asks its server, after all earlier requests. Any thread may call it.
// Throws duo::error for an unknown name.
std::pair<size_t, size_t> rpc_memory(const std::string & name);

} // namespace duo
