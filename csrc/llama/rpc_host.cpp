#include "rpc_host.h"

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include <ggml-backend.h>
#include <ggml-rpc.h>
#include <ggml.h>

#include "base/error.h"
#include "cpu/team.h"
#include "device.h"
#include "failed_check.h"
#include "log.h"

namespace duo {

namespace {

// Found by name, not linked: llama-cpp-python may have been built without RPC.
template <class F> F * rpc_function(const char * name) {
    ggml_backend_reg_t reg = ggml_backend_reg_by_name("RPC");
    F * f = reg == nullptr ? nullptr : reinterpret_cast<F *>(ggml_backend_reg_get_proc_address(reg, name));
    if (f == nullptr) {
        throw error("this llama-cpp-python was built without RPC; duo devices says how to add it");
    }
    return f;
}

// Servers that this process uses. Never destroyed: libggml's thread may abort while the process ends.
std::string & servers() {
    static auto & s = *new std::string();
    return s;
}

// Instead of an abort with a core dump, the process ends with one sentence.
void on_host_abort(const char * message) {
    if (std::string_view(message).find("ggml-rpc.cpp:") == std::string_view::npos) {
        std::fprintf(stderr, "%s\n", message);
        return;
    }
    std::fprintf(stderr, "duo: the RPC server %s was lost, or is not compatible with this llama.cpp%s\n",
                 servers().c_str(), log_reason().c_str());
    std::fflush(stderr);
    std::_Exit(1);
}

bool is_gpu(const device_info & d) {
    return d.type == "gpu" || d.type == "igpu";
}

std::vector<ggml_backend_dev_t> served_devices(const std::vector<std::string> & names) {
    const std::vector<device_info> all = list_devices();
    std::vector<std::string>       served;
    for (const device_info & d : all) {
        if (names.empty() && is_gpu(d)) {
            served.push_back(d.name);
        }
    }
    if (names.empty() && served.empty()) {
        return {ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU)};
    }
    std::vector<ggml_backend_dev_t> devs;
    for (const std::string & name : names.empty() ? served : names) {
        std::string known;
        bool        found = false;
        for (const device_info & d : all) {
            if (is_gpu(d) || d.type == "cpu") {
                known += (known.empty() ? "" : ", ") + d.name;
                found |= d.name == name;
            }
        }
        if (!found) {
            throw error(error_kind::bad_value, "unknown device " + name + "; choose from " + known);
        }
        devs.push_back(ggml_backend_dev_by_name(name.c_str()));
    }
    return devs;
}

} // namespace

void rpc_serve(const std::string & endpoint, const std::string & cache_dir, int n_threads,
               const std::vector<std::string> & devices) {
    const auto start = rpc_function<decltype(ggml_backend_rpc_start_server)>("ggml_backend_rpc_start_server");
    std::vector<ggml_backend_dev_t> devs = served_devices(devices);
    // The library reports its devices and clients on standard output; a pipe must get each line at once.
    std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);
    const cpu::team_size packing(n_threads);
    start(endpoint.c_str(), cache_dir.empty() ? nullptr : cache_dir.c_str(), size_t(n_threads), devs.size(),
          devs.data());
    throw error("the RPC server at " + endpoint + " could not be started or ended; see the lines above");
}

std::vector<std::string> rpc_connect(const std::string & endpoint) {
    const auto add = rpc_function<decltype(ggml_backend_rpc_add_server)>("ggml_backend_rpc_add_server");
    servers() += (servers().empty() ? "" : " or ") + endpoint;
    log_clear_errors();
    on_failed_check(on_host_abort);
    ggml_backend_reg_t reg = add(endpoint.c_str());
    if (reg == nullptr) {
        throw error(error_kind::peer_lost,
                    "the RPC server at " + endpoint + " serves no device; see duo rpc-server --help");
    }
    ggml_backend_register(reg);
    std::vector<std::string> names;
    for (size_t i = 0; i < ggml_backend_reg_dev_count(reg); ++i) {
        names.emplace_back(ggml_backend_dev_name(ggml_backend_reg_dev_get(reg, i)));
    }
    return names;
}

std::pair<size_t, size_t> rpc_memory(const std::string & name) {
    ggml_backend_dev_t dev = ggml_backend_dev_by_name(name.c_str());
    if (dev == nullptr) {
        throw error(error_kind::bad_value, "unknown device " + name + "; see duo devices");
    }
    std::pair<size_t, size_t> bytes;
    ggml_backend_dev_memory(dev, &bytes.first, &bytes.second);
    return bytes;
}

} // namespace duo
