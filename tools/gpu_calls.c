// Stands between ggml and a GPU's driver (LD_PRELOAD). It counts submissions, waits and copies
// (benchmarks/gpu/copies.py), and lets Vulkan's calls fail (tests/test_gpu_faults.py): allocations of more than
// VK_MOST_BYTES, and submissions after the first VK_MOST_SUBMISSIONS.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { SUBMITS, WAITS, COPIES, COPIED_BYTES, LAUNCHES, N_COUNTERS };
static long counters[N_COUNTERS];

__attribute__((visibility("default"))) void read_counters(long * out) {
    for (int i = 0; i < N_COUNTERS; ++i) {
        out[i] = __atomic_exchange_n(&counters[i], 0, __ATOMIC_RELAXED);
    }
}

static void count(int which, long n) {
    __atomic_add_fetch(&counters[which], n, __ATOMIC_RELAXED);
}

static long most(const char * name) {
    const char * text = getenv(name);
    return text == NULL ? 1L << 60 : atol(text);
}

// ---- CUDA's runtime

#define FORWARD(name, ...) ((name##_type)dlsym(RTLD_NEXT, #name))(__VA_ARGS__)

typedef int (*cudaMemcpyAsync_type)(void *, const void *, size_t, int, void *);
int cudaMemcpyAsync(void * to, const void * from, size_t n, int kind, void * stream) {
    count(COPIES, 1);
    count(COPIED_BYTES, (long)n);
    return FORWARD(cudaMemcpyAsync, to, from, n, kind, stream);
}

typedef int (*cudaStreamSynchronize_type)(void *);
int cudaStreamSynchronize(void * stream) {
    count(WAITS, 1);
    return FORWARD(cudaStreamSynchronize, stream);
}

typedef struct {
    unsigned x, y, z;
} dim;
typedef int (*cudaLaunchKernel_type)(const void *, dim, dim, void **, size_t, void *);
int cudaLaunchKernel(const void * f, dim grid, dim block, void ** args, size_t shared, void * stream) {
    count(LAUNCHES, 1);
    return FORWARD(cudaLaunchKernel, f, grid, block, args, shared, stream);
}

typedef int (*cudaGraphLaunch_type)(void *, void *);
int cudaGraphLaunch(void * graph, void * stream) {
    count(SUBMITS, 1);
    return FORWARD(cudaGraphLaunch, graph, stream);
}

// ---- Vulkan, whose functions are asked for by name

typedef void (*function)(void);
typedef function (*get_function)(void *, const char *);
static get_function of_device;
static int (*allocate)(void *, const void *, const void *, void *);
static int (*queue_submit)(void *, unsigned, const void *, void *);
static int (*wait_fences)(void *, unsigned, const void *, unsigned, unsigned long);
static int (*fence_status)(void *, void *);
static void (*copy_buffer)(void *, void *, void *, unsigned, const unsigned long *);
static void (*dispatch)(void *, unsigned, unsigned, unsigned);

struct allocation { // VkMemoryAllocateInfo
    int           type;
    const void *  next;
    unsigned long size;
    unsigned      memory_type;
};

static int my_allocate(void * device, const struct allocation * info, const void * callbacks, void * memory) {
    const int out_of_device_memory = -2;
    return (long)info->size > most("VK_MOST_BYTES") ? out_of_device_memory : allocate(device, info, callbacks, memory);
}

static int my_submit(void * queue, unsigned n, const void * infos, void * fence) {
    static long n_all;
    const int   device_lost = -4;
    if (__atomic_add_fetch(&n_all, 1, __ATOMIC_RELAXED) > most("VK_MOST_SUBMISSIONS")) {
        return device_lost;
    }
    count(SUBMITS, n > 0);
    return queue_submit(queue, n, infos, fence);
}

static int my_wait(void * device, unsigned n, const void * fences, unsigned all, unsigned long ns) {
    count(WAITS, 1);
    return wait_fences(device, n, fences, all, ns);
}

static int my_status(void * device, void * fence) {
    const int result = fence_status(device, fence);
    count(WAITS, result == 0);
    return result;
}

static void my_copy(void * buffer, void * from, void * to, unsigned n, const unsigned long * regions) {
    for (unsigned i = 0; i < n; ++i) { // each is {from, to, size}
        count(COPIES, 1);
        count(COPIED_BYTES, (long)regions[3 * i + 2]);
    }
    copy_buffer(buffer, from, to, n, regions);
}

static void my_dispatch(void * buffer, unsigned x, unsigned y, unsigned z) {
    count(LAUNCHES, 1);
    dispatch(buffer, x, y, z);
}

static function replaced(const char * name, function own) {
    const struct {
        const char * name;
        void **      own;
        void *       mine;
    } all[] = {
        {"vkAllocateMemory", (void **)&allocate, (void *)my_allocate},
        {"vkQueueSubmit", (void **)&queue_submit, (void *)my_submit},
        {"vkWaitForFences", (void **)&wait_fences, (void *)my_wait},
        {"vkGetFenceStatus", (void **)&fence_status, (void *)my_status},
        {"vkCmdCopyBuffer", (void **)&copy_buffer, (void *)my_copy},
        {"vkCmdDispatch", (void **)&dispatch, (void *)my_dispatch},
    };
    for (size_t i = 0; own != NULL && i < sizeof all / sizeof *all; ++i) {
        if (strcmp(name, all[i].name) == 0) {
            *all[i].own = (void *)own;
            return (function)all[i].mine;
        }
    }
    return own;
}

static function my_of_device(void * device, const char * name) {
    return replaced(name, of_device(device, name));
}

__attribute__((visibility("default"))) function vkGetInstanceProcAddr(void * instance, const char * name) {
    const get_function next = (get_function)dlsym(RTLD_NEXT, "vkGetInstanceProcAddr");
    const function     own  = next == NULL ? NULL : next(instance, name);
    if (own != NULL && strcmp(name, "vkGetDeviceProcAddr") == 0) {
        of_device = (get_function)own;
        return (function)my_of_device;
    }
    return replaced(name, own);
}
