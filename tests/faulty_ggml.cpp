// For LD_PRELOAD: a machine, or a llama.cpp, some of whose kernels fail. FAULTY="AMX=SIGILL,duo avx512=hang" in the
// environment; kinds as in csrc/cpu/trial.h, ways to fail as in fail() below. Where AMX is named, ggml's rearranged
// buffers (CPU_REPACK) pass for AMX's. With FAULTY set, be it empty, the machine's own AMX is not there.
// driver=N: after N graphs of libllama's each one fails as ggml-cuda does when a call of its driver fails.
// FAULTY_FORK=1: no child process can be started.
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <ggml-backend.h>
#include <ggml-cpu.h>
#include <ggml.h>

namespace {

template <class F> F * next(const char * name) {
    return reinterpret_cast<F *>(dlsym(RTLD_NEXT, name));
}

// How this kind fails; empty: it works.
std::string fault_of(const std::string & kind) {
    const char *      given = std::getenv("FAULTY");
    const std::string all   = "," + std::string(given == nullptr ? "" : given) + ",";
    const size_t      at    = all.find("," + kind + "=");
    if (at == std::string::npos) {
        return "";
    }
    const size_t from = at + kind.size() + 2;
    return all.substr(from, all.find(',', from) - from);
}

void fail(const std::string & how) {
    if (how == "SIGILL") {
        __builtin_trap();
    } else if (how == "SIGSEGV") {
        *reinterpret_cast<volatile int *>(8) = 0;
    } else if (how == "SIGBUS") { // a page behind the end of a file
        char   path[] = "/tmp/faulty-XXXXXX";
        void * page   = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, mkstemp(path), 0);
        unlink(path);
        *static_cast<volatile char *>(page) = 1;
    } else if (how == "exit") {
        _exit(3);
    } else if (how == "kill") {
        kill(getpid(), SIGKILL);
    } else if (how == "hang") {
        while (true) {
            pause();
        }
    }
}

bool is_amx_meant() {
    return !fault_of("AMX").empty();
}

// ggml-cuda.cu, ggml_cuda_error
void fail_as_driver() {
    const auto log = next<void(ggml_log_level, const char *, ...)>("ggml_log_internal");
    log(GGML_LOG_LEVEL_ERROR, "%s error: %s\n", "CUDA", "out of memory");
    log(GGML_LOG_LEVEL_ERROR, "  current device: %d, in function %s at %s:%d\n", 0, "alloc", "/build/ggml-cuda.cu",
        507);
    log(GGML_LOG_LEVEL_ERROR, "  %s\n", "cuMemCreate(&handle, reserve_size, &prop, 0)");
    next<decltype(ggml_abort)>("ggml_abort")("/build/ggml-cuda.cu", 109, "CUDA error");
}

void * proc_address(ggml_backend_reg_t reg, const char * name) {
    return next<decltype(ggml_backend_reg_get_proc_address)>("ggml_backend_reg_get_proc_address")(reg, name);
}

// The device's extra buffer types but AMX's own, with a null pointer behind them.
ggml_backend_buffer_type_t * extra_but_amx(ggml_backend_dev_t device) {
    static std::vector<ggml_backend_buffer_type_t> kept;

    const auto name = next<decltype(ggml_backend_buft_name)>("ggml_backend_buft_name");
    const auto all  = reinterpret_cast<ggml_backend_dev_get_extra_bufts_t>(
        proc_address(ggml_backend_dev_backend_reg(device), "ggml_backend_dev_get_extra_bufts"));
    kept.clear();
    for (ggml_backend_buffer_type_t * b = all == nullptr ? nullptr : all(device); b != nullptr && *b != nullptr; ++b) {
        if (std::strcmp(name(*b), "AMX") != 0) {
            kept.push_back(*b);
        }
    }
    kept.push_back(nullptr);
    return kept.data();
}

} // namespace

extern "C" {

void * ggml_backend_reg_get_proc_address(ggml_backend_reg_t reg, const char * name) {
    if (std::getenv("FAULTY") != nullptr && std::strcmp(name, "ggml_backend_dev_get_extra_bufts") == 0) {
        return reinterpret_cast<void *>(extra_but_amx);
    }
    return proc_address(reg, name);
}

const char * ggml_backend_buft_name(ggml_backend_buffer_type_t type) {
    const char * name = next<decltype(ggml_backend_buft_name)>("ggml_backend_buft_name")(type);
    return is_amx_meant() && std::strcmp(name, "CPU_REPACK") == 0 ? "AMX" : name;
}

ggml_status ggml_graph_compute(ggml_cgraph * graph, ggml_cplan * plan) {
    const auto n_nodes = next<decltype(ggml_graph_n_nodes)>("ggml_graph_n_nodes");
    const auto node_at = next<decltype(ggml_graph_node)>("ggml_graph_node");
    const auto type_of = next<decltype(ggml_backend_buffer_get_type)>("ggml_backend_buffer_get_type");
    const auto status  = next<decltype(ggml_graph_compute)>("ggml_graph_compute");
    for (int i = 0; i < n_nodes(graph); ++i) {
        const ggml_tensor * node = node_at(graph, i);
        if (node->op != GGML_OP_MUL_MAT || node->src[0]->buffer == nullptr) {
            continue;
        }
        const std::string name = ggml_backend_buft_name(type_of(node->src[0]->buffer));
        const std::string how  = fault_of(name.rfind("CPU", 0) == 0 && name != "CPU_REPACK" ? "plain" : name);
        fail(how);
        if (how == "wrong") {
            const ggml_status done = status(graph, plan);
            std::memset(node->data, 0, sizeof(float));
            static_cast<float *>(node->data)[0] = 1e6f;
            return done;
        }
    }
    return status(graph, plan);
}

ggml_status ggml_backend_sched_graph_compute_async(ggml_backend_sched_t scheduler, ggml_cgraph * graph) {
    static std::atomic<long> n_graphs{0};
    if (const std::string most = fault_of("driver"); !most.empty() && ++n_graphs > std::stol(most)) {
        fail_as_driver();
    }
    const auto compute =
        next<decltype(ggml_backend_sched_graph_compute_async)>("ggml_backend_sched_graph_compute_async");
    return compute(scheduler, graph);
}

// The child says what it begins with; duo's kernels are its own, so they fail there.
ssize_t write(int fd, const void * data, size_t size) {
    const ssize_t     n = next<decltype(write)>("write")(fd, data, size);
    const std::string said(static_cast<const char *>(data), size);
    if (fd == STDOUT_FILENO && said.rfind("begins\tduo ", 0) == 0) {
        fail(fault_of(said.substr(7, said.size() - 8)));
    }
    return n;
}

pid_t fork() {
    if (std::getenv("FAULTY_FORK") != nullptr) {
        errno = EAGAIN;
        return -1;
    }
    return next<decltype(fork)>("fork")();
}

pid_t vfork() {
    return fork();
}

} // extern "C"
