#include "shared_rpc.h"

#include <cstdlib>
#include <cstring>
#include <set>
#include <string>

#include <ggml-backend.h>

#include "device.h"

namespace duo {

namespace {

// Endpoints of the RPC servers that hold parts of this model. ggml-rpc gives them as the devices' descriptions.
std::set<std::string> rpc_endpoints(const model_options & model) {
    std::set<std::string> endpoints;
    if (model.path.empty() || model.devices.empty()) {
        return endpoints;
    }
    for (ggml_backend_dev_t dev : resolve_devices(model.devices)) {
        if (dev != nullptr && std::strcmp(type_name(dev), "rpc") == 0) {
            endpoints.insert(ggml_backend_dev_description(dev));
        }
    }
    return endpoints;
}

} // namespace

void prepare_shared_rpc(const model_options & target, const model_options & draft) {
    const std::set<std::string> drafts = rpc_endpoints(draft);
    for (const std::string & endpoint : rpc_endpoints(target)) {
        if (drafts.contains(endpoint)) {
            setenv("LLAMA_GRAPH_REUSE_DISABLE", "1", 1); // libllama reads it when it makes a context
        }
    }
}

} // namespace duo
