// The structures that a ggml backend fills in. llama-cpp-python installs no header for them, so they are declared here
// again, with the layout of ggml-backend-impl.h in llama.cpp 0c1e57098 (backend API version 2). They are used only with
// that commit: see other_ggml().
#pragma once

#include <ggml-backend.h>
#include <ggml.h>

constexpr int          duo_ggml_api_version = 2;
constexpr const char * duo_ggml_commit      = "0c1e57098";
constexpr const char * duo_ggml_version     = "0.25.3";
constexpr const char * duo_llama_release    = "0.3.36"; // the llama-cpp-python with this commit

// Unused members are declared as plain pointers: only their size counts.
using duo_unused_fn = void (*)();

struct ggml_backend_buffer_type {
    const char * (*get_name)(ggml_backend_buffer_type_t);
    ggml_backend_buffer_t (*alloc_buffer)(ggml_backend_buffer_type_t, size_t size);
    size_t (*get_alignment)(ggml_backend_buffer_type_t);
    size_t (*get_max_size)(ggml_backend_buffer_type_t);                        // nullptr: no limit
    size_t (*get_alloc_size)(ggml_backend_buffer_type_t, const ggml_tensor *); // nullptr: ggml_nbytes
    bool (*is_host)(ggml_backend_buffer_type_t);                               // nullptr: no
    ggml_backend_dev_t device;
    void *             context;
};

struct ggml_backend_buffer_i {
    void (*free_buffer)(ggml_backend_buffer_t);
    void * (*get_base)(ggml_backend_buffer_t);
    ggml_status (*init_tensor)(ggml_backend_buffer_t, ggml_tensor *);
    void (*memset_tensor)(ggml_backend_buffer_t, ggml_tensor *, uint8_t value, size_t offset, size_t size);
    void (*set_tensor)(ggml_backend_buffer_t, ggml_tensor *, const void * data, size_t offset, size_t size);
    void (*get_tensor)(ggml_backend_buffer_t, const ggml_tensor *, void * data, size_t offset, size_t size);
    duo_unused_fn set_tensor_2d;
    duo_unused_fn get_tensor_2d;
    duo_unused_fn cpy_tensor;
    void (*clear)(ggml_backend_buffer_t, uint8_t value);
    duo_unused_fn reset;
};

struct ggml_backend_buffer {
    ggml_backend_buffer_i      iface;
    ggml_backend_buffer_type_t buft;
    void *                     context;
    size_t                     size;
    ggml_backend_buffer_usage  usage;
};

extern "C" ggml_backend_buffer_t ggml_backend_buffer_init(ggml_backend_buffer_type_t buft, ggml_backend_buffer_i iface,
                                                          void * context, size_t size);

struct ggml_backend {
    ggml_guid_t guid;
    const char * (*get_name)(ggml_backend_t);
    void (*free)(ggml_backend_t);
    duo_unused_fn set_tensor_async, get_tensor_async, set_tensor_2d_async, get_tensor_2d_async, cpy_tensor_async;
    void (*synchronize)(ggml_backend_t);
    duo_unused_fn graph_plan_create, graph_plan_free, graph_plan_update, graph_plan_compute;
    ggml_status (*graph_compute)(ggml_backend_t, ggml_cgraph *);
    duo_unused_fn      event_record, event_wait, graph_optimize;
    ggml_backend_dev_t device;
    void *             context;
};

struct ggml_backend_device {
    const char * (*get_name)(ggml_backend_dev_t);
    const char * (*get_description)(ggml_backend_dev_t);
    void (*get_memory)(ggml_backend_dev_t, size_t * free, size_t * total);
    enum ggml_backend_dev_type (*get_type)(ggml_backend_dev_t);
    void (*get_props)(ggml_backend_dev_t, ggml_backend_dev_props *);
    ggml_backend_t (*init_backend)(ggml_backend_dev_t, const char * params);
    ggml_backend_buffer_type_t (*get_buffer_type)(ggml_backend_dev_t);
    duo_unused_fn get_host_buffer_type, buffer_from_host_ptr;
    bool (*supports_op)(ggml_backend_dev_t, const ggml_tensor *);
    bool (*supports_buft)(ggml_backend_dev_t, ggml_backend_buffer_type_t);
    duo_unused_fn      offload_op, event_new, event_free, event_synchronize;
    ggml_backend_reg_t reg;
    void *             context;
};

struct ggml_backend_reg {
    int api_version;
    const char * (*get_name)(ggml_backend_reg_t);
    size_t (*get_device_count)(ggml_backend_reg_t);
    ggml_backend_dev_t (*get_device)(ggml_backend_reg_t, size_t index);
    void * (*get_proc_address)(ggml_backend_reg_t, const char * name);
    void * context;
};
