#include "ggml_device.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "ggml_buffer.h"
#include "ggml_compute.h"

namespace duo::cpu {

namespace {

// What a draft's weights may be kept in.
constexpr std::array packed_types = {GGML_TYPE_Q4_0, GGML_TYPE_IQ4_NL};

thread_local bool taking_attention = false; // see take_attention

thread_local std::span<const ggml_backend_dev_t> helpers; // see offload_products

backend & of(ggml_backend_t b) {
    return *static_cast<backend *>(b->context);
}

bool is_f32_rows(const ggml_tensor * t) {
    return t->type == GGML_TYPE_F32 && t->nb[0] == sizeof(float);
}

bool on_host(const ggml_tensor * t) {
    const ggml_backend_buffer_t buffer = t->view_src != nullptr ? t->view_src->buffer : t->buffer;
    return buffer != nullptr && ggml_backend_buffer_is_host(buffer);
}

// Whether the cache has half-precision rows of whole vectors, in one stream.
bool is_f16_cache(const ggml_tensor * t) {
    return t->type == GGML_TYPE_F16 && t->nb[0] == 2 && t->ne[0] % n_lanes == 0 && t->ne[3] == 1 && on_host(t);
}

bool can_attend(const ggml_tensor * op) {
    const ggml_tensor * q     = op->src[0];
    const ggml_tensor * k     = op->src[1];
    const ggml_tensor * v     = op->src[2];
    const ggml_tensor * mask  = op->src[3];
    const ggml_tensor * sinks = op->src[4];
    const bool          fit   = k->ne[1] == v->ne[1] && k->ne[2] == v->ne[2] && q->ne[2] % k->ne[2] == 0;
    const bool masks = mask == nullptr || (mask->type == GGML_TYPE_F16 && mask->nb[0] == 2 && mask->ne[0] == k->ne[1] &&
                                           mask->ne[1] >= q->ne[1] && mask->ne[2] * mask->ne[3] == 1);
    return is_f32_rows(q) && q->ne[3] == 1 && is_f16_cache(k) && is_f16_cache(v) && fit && masks &&
           (sinks == nullptr || sinks->type == GGML_TYPE_F32) && op->type == GGML_TYPE_F32 && ggml_is_contiguous(op);
}

// A device says from how many rows on a product is worth copying the weight.
bool is_for_helper(const ggml_tensor * op) {
    return stored_type(op->src[0]) == op->src[0]->type &&
           std::any_of(helpers.begin(), helpers.end(), [op](ggml_backend_dev_t d) {
               return ggml_backend_dev_offload_op(d, op) && ggml_backend_dev_supports_op(d, op);
           });
}

bool supports_op(ggml_backend_dev_t, const ggml_tensor * op) {
    const ggml_tensor * w = op->src[0];
    const ggml_tensor * x = op->src[1];
    switch (op->op) {
        case GGML_OP_NONE:
        case GGML_OP_RESHAPE:
        case GGML_OP_VIEW:
        case GGML_OP_PERMUTE:
        case GGML_OP_TRANSPOSE:
            return true;
        case GGML_OP_MUL_MAT:
            return is_packed(w) && w->view_src == nullptr && w->ne[2] * w->ne[3] == 1 && is_f32_rows(x) &&
                   is_f32_rows(op) && !is_for_helper(op);
        case GGML_OP_MUL_MAT_ID:
            return is_packed(w) && w->view_src == nullptr && w->ne[3] == 1 && is_f32_rows(x) && x->ne[3] == 1 &&
                   is_f32_rows(op) && !is_for_helper(op);
        case GGML_OP_GET_ROWS:
            return is_packed(w) && w->view_src == nullptr && w->ne[2] * w->ne[3] == 1 && x->type == GGML_TYPE_I32 &&
                   x->ne[1] * x->ne[2] * x->ne[3] == 1 && is_f32_rows(op);
        case GGML_OP_FLASH_ATTN_EXT:
            return taking_attention && can_attend(op);
        default:
            return false;
    }
}

ggml_backend_t init_backend(ggml_backend_dev_t device, const char *) {
    static ggml_guid guid = {0x64, 0x75, 0x6f, 0x2d, 0x63, 0x70, 0x75, 0x2d,
                             0x6b, 0x65, 0x72, 0x6e, 0x65, 0x6c, 0x73, 1};
    auto             b    = std::make_unique<ggml_backend>();
    b->guid               = &guid;
    b->get_name           = [](ggml_backend_t) { return "duo"; };
    b->free               = [](ggml_backend_t x) {
        const std::unique_ptr<ggml_backend> shell(x);
        const std::unique_ptr<backend>      inside(&of(x));
    };
    b->synchronize   = [](ggml_backend_t x) { of(x).forget(); };
    b->graph_compute = [](ggml_backend_t x, ggml_cgraph * graph) { return of(x).compute(graph); };
    b->device        = device;
    b->context       = std::make_unique<backend>().release();
    return b.release();
}

// Registered for the life of the process, like ggml's own devices.
struct registered {
    ggml_backend_reg                                          reg{};
    ggml_backend_device                                       device{};
    ggml_backend_buffer_type                                  buffer_type{};
    std::array<ggml_backend_buffer_type, packed_types.size()> draft_types{}; // by what they keep weights in
};

registered & instance() {
    static registered r;
    return r;
}

void register_device(registered & r) {
    r.device.get_name        = [](ggml_backend_dev_t) { return "duo"; };
    r.device.get_description = [](ggml_backend_dev_t) { return "duo's CPU kernels"; };
    r.device.get_memory      = [](ggml_backend_dev_t, size_t * n_free, size_t * n_total) { *n_free = *n_total = 0; };
    r.device.get_type        = [](ggml_backend_dev_t) { return GGML_BACKEND_DEVICE_TYPE_ACCEL; };
    r.device.get_props       = [](ggml_backend_dev_t d, ggml_backend_dev_props * p) {
        *p             = {};
        p->name        = d->get_name(d);
        p->description = d->get_description(d);
        p->type        = d->get_type(d);
    };
    r.device.init_backend    = init_backend;
    r.device.get_buffer_type = [](ggml_backend_dev_t) { return ggml_backend_cpu_buffer_type(); };
    r.device.supports_op     = supports_op;
    r.device.supports_buft   = [](ggml_backend_dev_t, ggml_backend_buffer_type_t t) {
        return t->device == &instance().device || ggml_backend_buft_is_host(t);
    };
    r.device.reg  = &r.reg;
    r.buffer_type = make_buffer_type(&r.device);
    for (size_t i = 0; i < packed_types.size(); ++i) {
        r.draft_types[i] = make_buffer_type(&r.device, &packed_types[i]);
    }
    r.reg.api_version      = duo_ggml_api_version;
    r.reg.get_name         = [](ggml_backend_reg_t) { return "duo"; };
    r.reg.get_device_count = [](ggml_backend_reg_t) { return size_t(1); };
    r.reg.get_device       = [](ggml_backend_reg_t, size_t) { return &instance().device; };
    r.reg.get_proc_address = [](ggml_backend_reg_t, const char * name) -> void * {
        if (std::strcmp(name, "ggml_backend_set_n_threads") == 0) {
            const ggml_backend_set_n_threads_t set = [](ggml_backend_t b, int n) { of(b).n_threads = n; };
            return reinterpret_cast<void *>(set);
        }
        return nullptr;
    };
    ggml_backend_register(&r.reg);
}

std::string & ggml_release() {
    static std::string r;
    return r;
}

std::string find_obstacle() {
    if (best_kernels() == nullptr && std::getenv("DUO_CPU_ISA") != nullptr) {
        return "DUO_CPU_ISA does not name an instruction set that works here";
    }
    if (best_kernels() == nullptr && !refused_kernels().empty()) {
        return "duo's kernels crash here, on instructions that the processor announces";
    }
    if (best_kernels() == nullptr) {
        return "this processor has none of the instruction sets that duo has kernels for (x86-64: AVX2; ARM: NEON "
               "with dot product)";
    }
    if (!has_threads()) {
        return "duo was built without OpenMP (on macOS: install libomp and build duo again)";
    }
    if (const std::string why = other_ggml(); !why.empty()) {
        return why;
    }
    return "";
}

} // namespace

ggml_build loaded_build() {
    return {ggml_commit(), ggml_version(), ggml_release()};
}

void set_release(const std::string & r) {
    ggml_release() = r;
}

std::string other_ggml() {
    const ggml_build made_for{duo_ggml_commit, duo_ggml_version, duo_llama_release};
    if (!same_source(made_for, loaded_build())) {
        return "llama.cpp is " + description(loaded_build()) + ", and the kernels were made for " +
               description(made_for);
    }
    ggml_backend_dev_t cpu = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    if (cpu == nullptr || ggml_backend_dev_backend_reg(cpu)->api_version != duo_ggml_api_version) {
        return "libggml's backend interface differs from the one that the kernels were made for";
    }
    return "";
}

std::string why_no_kernels() {
    static const std::string why = find_obstacle();
    return why;
}

ggml_backend_buffer_type_t weight_buffer_type() {
    if (!why_no_kernels().empty()) {
        return nullptr;
    }
    [[maybe_unused]] static const bool done = (register_device(instance()), true);
    return &instance().buffer_type;
}

ggml_backend_buffer_type_t draft_buffer_type(ggml_type stored) {
    const auto * const found = std::find(packed_types.begin(), packed_types.end(), stored);
    return found == packed_types.end() || weight_buffer_type() == nullptr
               ? nullptr
               : &instance().draft_types[size_t(found - packed_types.begin())];
}

std::vector<std::string> packed_type_names() {
    std::vector<std::string> names;
    for (const ggml_type t : packed_types) {
        names.emplace_back(ggml_type_name(t));
    }
    return names;
}

take_attention::take_attention(bool take, cell_order * order)
    : before_(taking_attention), order_before_(set_cell_order(order)) {
    taking_attention = take;
}

take_attention::~take_attention() {
    taking_attention = before_;
    set_cell_order(order_before_);
}

offload_products::offload_products(std::span<const ggml_backend_dev_t> devices)
    : before_(std::exchange(helpers, devices)) {
}

offload_products::~offload_products() {
    helpers = before_;
}

read_pages_ahead::read_pages_ahead(page_reader * pages, experts_ahead * experts)
    : before_(set_page_reader(pages)), experts_before_(set_experts_ahead(experts)) {
}

read_pages_ahead::~read_pages_ahead() {
    set_page_reader(before_);
    set_experts_ahead(experts_before_);
}

int64_t take_attention::n_done() {
    return n_attentions();
}

experts_read experts_read_so_far() {
    return read_of_experts();
}

std::string kernels_name() {
    const kernel_set * k = best_kernels();
    return k == nullptr ? "" : k->name;
}

} // namespace duo::cpu
