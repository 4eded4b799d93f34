#include "ggml_buffer.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "repack.h"
#include "requantise.h"
#include "team.h"
#include "weight_memory.h"

namespace duo::cpu {

namespace {

weight_memory & memory_of(ggml_backend_buffer_t b) {
    return *static_cast<weight_memory *>(b->context);
}

constexpr std::pair<ggml_type, format> known_types[] = {
    {GGML_TYPE_Q8_0, format::q8_0},     {GGML_TYPE_Q4_0, format::q4_0},       {GGML_TYPE_Q4_1, format::q4_1},
    {GGML_TYPE_Q5_0, format::q5_0},     {GGML_TYPE_Q5_1, format::q5_1},       {GGML_TYPE_IQ4_NL, format::iq4_nl},
    {GGML_TYPE_MXFP4, format::mxfp4},   {GGML_TYPE_Q2_K, format::q2_k},       {GGML_TYPE_Q3_K, format::q3_k},
    {GGML_TYPE_Q4_K, format::q4_k},     {GGML_TYPE_Q5_K, format::q5_k},       {GGML_TYPE_Q6_K, format::q6_k},
    {GGML_TYPE_IQ4_XS, format::iq4_xs}, {GGML_TYPE_IQ2_XXS, format::iq2_xxs}, {GGML_TYPE_IQ2_XS, format::iq2_xs},
    {GGML_TYPE_IQ2_S, format::iq2_s},   {GGML_TYPE_IQ3_XXS, format::iq3_xxs}, {GGML_TYPE_IQ3_S, format::iq3_s},
    {GGML_TYPE_IQ1_S, format::iq1_s},   {GGML_TYPE_IQ1_M, format::iq1_m},     {GGML_TYPE_TQ1_0, format::tq1_0},
    {GGML_TYPE_TQ2_0, format::tq2_0},   {GGML_TYPE_BF16, format::bf16},       {GGML_TYPE_F16, format::f16},
    {GGML_TYPE_F32, format::f32},
};

std::optional<format> format_of(ggml_type type) {
    for (const auto & [known, f] : known_types) {
        if (known == type) {
            return f;
        }
    }
    return std::nullopt;
}

const ggml_backend_buffer * buffer_of(const ggml_tensor * t) {
    return t->view_src != nullptr ? t->view_src->buffer : t->buffer;
}

// What a buffer of this type makes of a tensor's type. buft: made by make_buffer_type.
ggml_type stored_in(const ggml_backend_buffer_type * buft, ggml_type type) {
    return buft->context == nullptr ? type : *static_cast<const ggml_type *>(buft->context);
}

uint8_t * matrix_at(const ggml_tensor * t, const matrix_shape & s, int64_t i) {
    return static_cast<uint8_t *>(t->data) + size_t(i) * s.bytes();
}

// The tensor's rows [from, to), as (matrix, row in it).
struct row_range {
    int64_t from, to;
    row_range(const ggml_tensor * t, size_t offset, size_t size)
        : from(int64_t(offset / t->nb[1])), to(int64_t((offset + size) / t->nb[1])) {
        if (offset % t->nb[1] != 0 || size % t->nb[1] != 0) {
            GGML_ABORT("duo: part of a row of %s was asked for; only whole rows can be", t->name);
        }
    }
};

// Packs rows [row0, row1) of a matrix: unpacks each panel that they touch, replaces rows, packs again.
void pack_rows(const matrix_shape & s, int64_t row0, int64_t row1, const uint8_t * from, size_t row_bytes,
               const convert_fn & convert, uint8_t * to) {
    const size_t         n_row = file_row(s);
    std::vector<uint8_t> own(size_t(n_lanes) * n_row);
    std::vector<float>   floats(convert ? size_t(s.k) : 0);
    for (int64_t panel = row0 / n_lanes; panel * n_lanes < row1; ++panel) {
        const uint8_t * rows[n_lanes];
        for (int lane = 0; lane < n_lanes; ++lane) {
            const int64_t   row  = panel * n_lanes + lane;
            const uint8_t * file = row >= row0 && row < row1 ? from + size_t(row - row0) * row_bytes : nullptr;
            uint8_t *       mine = own.data() + size_t(lane) * n_row;
            rows[lane]           = file != nullptr && !convert ? file : row < s.n ? mine : nullptr;
            if (file != nullptr && convert) {
                convert(file, mine, floats.data());
            } else if (file == nullptr && row < s.n) {
                unpack_row(s, to, row, mine);
            }
        }
        pack_panel(s, panel, rows, to);
    }
}

// libggml gives the tensor a place in the buffer's memory, and the buffer may know a better one.
ggml_status init_tensor(ggml_backend_buffer_t b, ggml_tensor * t) {
    const bool placed =
        t->view_src != nullptr || memory_of(b).place(t, stored_type(t), ggml_backend_buft_get_alloc_size(b->buft, t));
    return placed ? GGML_STATUS_SUCCESS : GGML_STATUS_ALLOC_FAILED;
}

void set_tensor(ggml_backend_buffer_t b, ggml_tensor * t, const void * data, size_t offset, size_t size) {
    if (weight_loading::ignores() || memory_of(b).fill(t, stored_type(t))) {
        return;
    }
    const matrix_shape s = shape_of(t);
    const row_range    r(t, offset, size);
    const auto *       from    = static_cast<const uint8_t *>(data);
    const convert_fn   convert = conversion(t->type, stored_type(t), s.k);
    for (int64_t row = r.from; row < r.to;) {
        const int64_t m       = row / s.n;
        const int64_t n_whole = row % s.n == 0 ? (r.to - row) / s.n : 0;
        const int64_t end     = n_whole > 0 ? row + n_whole * s.n : std::min(r.to, (m + 1) * s.n);
        if (n_whole > 0) {
            pack_matrices(s, n_whole, from, t->nb[1], matrix_at(t, s, m), threads_here(), convert);
        } else {
            pack_rows(s, row - m * s.n, end - m * s.n, from, t->nb[1], convert, matrix_at(t, s, m));
        }
        from += size_t(end - row) * t->nb[1];
        row = end;
    }
}

void get_tensor(ggml_backend_buffer_t, const ggml_tensor * t, void * data, size_t offset, size_t size) {
    const matrix_shape s = shape_of(t);
    const row_range    r(t, offset, size);
    auto *             to        = static_cast<uint8_t *>(data);
    const int64_t      row_bytes = int64_t(t->nb[1]);
    if (const convert_fn convert = conversion(stored_type(t), t->type, s.k)) { // rare: nothing hot reads such weights
        std::vector<uint8_t> own(file_row(s));
        std::vector<float>   floats(size_t(s.k));
        for (int64_t row = r.from; row < r.to; ++row) {
            unpack_row(s, matrix_at(t, s, row / s.n), row % s.n, own.data());
            convert(own.data(), to + (row - r.from) * row_bytes, floats.data());
        }
        return;
    }
    std::atomic<int64_t> next = r.from;
    on_team(int(std::min<int64_t>(threads_here(), (r.to - r.from + n_lanes - 1) / n_lanes)), [&] {
        for (int64_t row = next.fetch_add(n_lanes); row < r.to; row = next.fetch_add(n_lanes)) {
            for (const int64_t end = std::min(row + n_lanes, r.to); row < end; ++row) {
                unpack_row(s, matrix_at(t, s, row / s.n), row % s.n, to + (row - r.from) * row_bytes);
            }
        }
    });
}

void memset_tensor(ggml_backend_buffer_t b, ggml_tensor * t, uint8_t value, size_t offset, size_t size) {
    const std::vector<uint8_t> bytes(size, value);
    set_tensor(b, t, bytes.data(), offset, size);
}

// Returns nullptr if memory is short; llama.cpp reports this, and the model is then loaded with stock kernels.
ggml_backend_buffer_t alloc_buffer(ggml_backend_buffer_type_t buft, size_t size) {
    std::unique_ptr<weight_memory> m = weight_memory::make(size);
    if (m == nullptr) {
        return nullptr;
    }
    ggml_backend_buffer_i iface{};
    iface.free_buffer   = [](ggml_backend_buffer_t b) { const std::unique_ptr<weight_memory> last(&memory_of(b)); };
    iface.get_base      = [](ggml_backend_buffer_t b) { return memory_of(b).base(); };
    iface.init_tensor   = init_tensor;
    iface.memset_tensor = memset_tensor;
    iface.set_tensor    = set_tensor;
    iface.get_tensor    = get_tensor;
    iface.clear = [](ggml_backend_buffer_t b, uint8_t value) { std::memset(memory_of(b).base(), value, b->size); };
    size        = m->size();
    return ggml_backend_buffer_init(buft, iface, m.release(), size);
}

} // namespace

std::optional<matrix_shape> shape_of(ggml_type type, int64_t n_columns, int64_t n_rows) {
    const std::optional<format> f = format_of(type);
    if (!f || n_rows < 1 || n_columns < 1 || n_columns % traits_of(*f).n_unit != 0) {
        return std::nullopt;
    }
    return matrix_shape{*f, n_rows, n_columns};
}

ggml_type type_named(const std::string & name) {
    for (int t = 0; t < GGML_TYPE_COUNT; ++t) {
        if (const char * known = ggml_type_name(ggml_type(t)); known != nullptr && name == known) {
            return ggml_type(t);
        }
    }
    return GGML_TYPE_COUNT;
}

int64_t packed_bytes(const std::string & type, int64_t n_columns, int64_t n_rows) {
    const ggml_type t     = type_named(type);
    const auto      shape = t == GGML_TYPE_COUNT ? std::nullopt : shape_of(t, n_columns, n_rows);
    return shape ? int64_t(shape->bytes()) : 0;
}

matrix_shape shape_of(const ggml_tensor * weight) {
    const std::optional<matrix_shape> s = shape_of(stored_type(weight), weight->ne[0], weight->ne[1]);
    if (!s) {
        GGML_ABORT("duo: %s has a type or shape that its buffer cannot hold", weight->name);
    }
    return *s;
}

ggml_type stored_type(const ggml_tensor * weight) {
    return stored_in(buffer_of(weight)->buft, weight->type);
}

bool is_packed(const ggml_tensor * t) {
    const ggml_backend_buffer * buffer = buffer_of(t);
    return buffer != nullptr && buffer->buft->alloc_buffer == alloc_buffer;
}

ggml_backend_buffer_type make_buffer_type(ggml_backend_dev_t device, const ggml_type * stored) {
    ggml_backend_buffer_type t{};
    // libllama takes buffer types of the same name for one.
    t.get_name = [](ggml_backend_buffer_type_t buft) {
        const ggml_type stored = stored_in(buft, GGML_TYPE_COUNT);
        return stored == GGML_TYPE_COUNT ? "duo" : ggml_type_name(stored);
    };
    t.alloc_buffer  = alloc_buffer;
    t.get_alignment = [](ggml_backend_buffer_type_t) { return size_t(64); };
    // Less than the tensor's own size is allowed, but for a check in debug builds of libggml.
    t.get_alloc_size = [](ggml_backend_buffer_type_t buft, const ggml_tensor * x) {
        const std::optional<matrix_shape> s = shape_of(stored_in(buft, x->type), x->ne[0], x->ne[1]);
        return s ? s->bytes() * size_t(x->ne[2] * x->ne[3]) : ggml_nbytes(x);
    };
    t.device  = device;
    t.context = const_cast<ggml_type *>(stored); // ggml's field is for any use, and it is only read
    return t;
}

} // namespace duo::cpu
