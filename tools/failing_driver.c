// Stands between libllama and libggml (LD_PRELOAD). After the first GRAPHS_MOST graphs each one fails as ggml-cuda does
// when a call of its driver fails (ggml-cuda.cu, ggml_cuda_error): tests/test_driver_faults.py.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>

enum { LOG_ERROR = 4 }; // ggml.h, GGML_LOG_LEVEL_ERROR

typedef int (*compute_type)(void *, void *);
typedef void (*log_type)(int, const char *, ...);
typedef void (*abort_type)(const char *, int, const char *, ...);

static void * of_ggml(const char * name) {
    static void * library;
    if (library == NULL) {
        library = dlopen(getenv("GGML_BASE"), RTLD_NOW | RTLD_NOLOAD);
    }
    return dlsym(library, name);
}

int ggml_backend_sched_graph_compute_async(void * scheduler, void * graph) {
    static long n_graphs;
    if (__atomic_add_fetch(&n_graphs, 1, __ATOMIC_RELAXED) > atol(getenv("GRAPHS_MOST"))) {
        const log_type log_line = (log_type)of_ggml("ggml_log_internal");
        log_line(LOG_ERROR, "%s error: %s\n", "CUDA", "out of memory");
        log_line(LOG_ERROR, "  current device: %d, in function %s at %s:%d\n", 0, "alloc", "/build/ggml-cuda.cu", 507);
        log_line(LOG_ERROR, "  %s\n", "cuMemCreate(&handle, reserve_size, &prop, 0)");
        ((abort_type)of_ggml("ggml_abort"))("/build/ggml-cuda.cu", 109, "CUDA error");
    }
    return ((compute_type)of_ggml("ggml_backend_sched_graph_compute_async"))(scheduler, graph);
}
