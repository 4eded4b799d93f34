#include <map>
#include <optional>
#include <string>
#include <tuple>

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include "base/clock.h"
#include "base/error.h"
#include "bindings.h"
#include "cpu/ggml_buffer.h"
#include "cpu/ggml_device.h"
#include "cpu/race.h"
#include "llama/hidden.h"
#include "llama/model.h"
#include "llama/stock_kernels.h"
#include "llama/weight_placement.h"
#include "llama/weights_loader.h"

namespace py = pybind11;
using namespace pybind11::literals;

namespace duo {

namespace {

// One model without workers: runs and times the passes that the caller asks for. One thread at a time may use it.
class probe {
  public:
    probe(const model_options & options, bool is_draft) : model_(load_weights(options, is_draft)) {
        stock_kernels_used();
    }

    using floats = py::array_t<float, py::array::c_style | py::array::forcecast>;

    // Evaluates tokens at positions from pos0 on; the cache below pos0 stays. states: of a draft head, the state before
    // each token. only_last: the other rows have no output, as in a prompt. n_levels: of rows with an output, of a head
    // that guesses in blocks. Returns microseconds.
    int64_t decode(const std::vector<token_id> & tokens, int32_t pos0, const std::optional<floats> & states,
                   bool only_last, int32_t n_levels) {
        if (states && (states->ndim() != 2 || states->shape(0) != py::ssize_t(tokens.size()) ||
                       states->shape(1) != model_.facts().n_state)) {
            throw error(error_kind::bad_value, "each token needs a state of " + std::to_string(model_.facts().n_state) +
                                                   " numbers; only draft heads have states");
        }
        const py::gil_scoped_release released;
        if (pos0 < 0 || pos0 + int64_t(tokens.size()) > model_.facts().n_ctx) {
            throw error(error_kind::bad_value, "a pass of " + std::to_string(tokens.size()) + " tokens at " +
                                                   std::to_string(pos0) + " does not fit the context of " +
                                                   std::to_string(model_.facts().n_ctx));
        }
        std::vector<row> rows;
        for (size_t i = 0; i < tokens.size(); ++i) {
            rows.push_back({.token    = tokens[i],
                            .pos      = pos0 + int32_t(i),
                            .output   = !only_last || i + 1 == tokens.size(),
                            .n_levels = n_levels,
                            .state    = states ? states->data(py::ssize_t(i), 0) : nullptr});
        }
        n_rows_ = 0;
        if (!model_.rollback(0, pos0) || (model_.facts().undo != undo_kind::cells && model_.n_held(0) < pos0)) {
            throw error(error_kind::bad_value,
                        "the cache of " + model_.weights().options.path + " cannot be rolled back");
        }
        const std::atomic<bool> go{false};
        const cpu::experts_read before = cpu::experts_read_so_far();
        const int64_t           t0     = now_us();
        model_.decode(rows, go);
        const int64_t           t1    = now_us();
        const cpu::experts_read after = cpu::experts_read_so_far();

        experts_  = {.n_products = after.n_products - before.n_products,
                     .n_experts  = after.n_experts - before.n_experts,
                     .n_bytes    = after.n_bytes - before.n_bytes};
        n_rows_   = int32_t(rows.size());
        n_levels_ = n_levels;
        return t1 - t0;
    }

    // Of duo's kernels, in the last pass.
    [[nodiscard]] const cpu::experts_read & experts() const { return experts_; }

    // A recurrent state as it is now: passes may go back to it.
    void mark() { model_.mark(0); }

    // [rows of the last pass][n_vocab]
    py::array_t<float> logits() const {
        py::array_t<float> out({py::ssize_t(n_rows_), py::ssize_t(model_.facts().n_vocab)});
        for (int32_t i = 0; i < n_rows_; ++i) {
            const std::span<const float> row = model_.sampler()->logits(i);
            std::copy(row.begin(), row.end(), out.mutable_data(i, 0));
        }
        return out;
    }

    // Of a head that guesses in blocks: of the last row of the last pass, [levels][n_vocab]
    py::array_t<float> levels() const {
        py::array_t<float> out({py::ssize_t(n_levels_), py::ssize_t(model_.facts().n_vocab)});
        for (int32_t i = 0; i < n_levels_; ++i) {
            const std::span<const float> row = model_.sampler()->logits(n_rows_ - 1, i);
            std::copy(row.begin(), row.end(), out.mutable_data(i, 0));
        }
        return out;
    }

    // [rows of the last pass][inputs of the feature layers, one after the other]
    py::array_t<float> features() {
        const int32_t      n = model_.facts().n_features;
        py::array_t<float> out({py::ssize_t(n_rows_), py::ssize_t(n)});
        for (int32_t i = 0; n > 0 && i < n_rows_; ++i) {
            model_.states().features(i, {out.mutable_data(i, 0), size_t(n)});
        }
        return out;
    }

    // Of a draft head: the states that it makes of the target's features. [n][n_inputs] to [n][n_state]
    py::array_t<float> encode(const floats & features) {
        if (model_.facts().n_inputs == 0 || features.ndim() != 2 || features.shape(1) != model_.facts().n_inputs) {
            throw error(error_kind::bad_value, "a draft head reads rows of " + std::to_string(model_.facts().n_inputs) +
                                                   " numbers; other models read none");
        }
        py::array_t<float> out({features.shape(0), py::ssize_t(model_.facts().n_state)});
        model_.states().encode({features.data(), size_t(features.size())}, {out.mutable_data(), size_t(out.size())});
        return out;
    }

    // Of a draft head: the states after the rows of the last pass. [rows][n_state]
    py::array_t<float> states() {
        const int32_t      n = model_.facts().n_state;
        py::array_t<float> out({py::ssize_t(n_rows_), py::ssize_t(n)});
        for (int32_t i = 0; n > 0 && i < n_rows_; ++i) {
            model_.states().state(i, {out.mutable_data(i, 0), size_t(n)});
        }
        return out;
    }

    // (token, logp) of the n best tokens after a row of the last pass, as a worker gets them. text: all tokens up to
    // that row.
    std::vector<std::pair<token_id, float>> candidates(int32_t i_row, const sampling_params & sampling,
                                                       const std::vector<token_id> & text, size_t n) {
        check_row(i_row);
        std::vector<candidate> found(n);
        found.resize(size_t(model_.candidates(i_row, sampling, text, found)));
        return pairs_of(found);
    }

    // (token, logp) of the distribution from which the token after a row is drawn.
    std::vector<std::pair<token_id, float>> chances(int32_t i_row, const sampling_params & sampling,
                                                    const std::vector<token_id> & text) {
        check_row(i_row);
        std::vector<candidate> found;
        model_.chances(i_row, sampling, text, found);
        return pairs_of(found);
    }

    const llama_token_model & model() const { return model_; }

  private:
    void check_row(int32_t i_row) const {
        if (i_row < 0 || i_row >= n_rows_) {
            throw error(error_kind::bad_value, "row " + std::to_string(i_row) + " was not in the last pass");
        }
    }

    static std::vector<std::pair<token_id, float>> pairs_of(const std::vector<candidate> & found) {
        std::vector<std::pair<token_id, float>> out;
        for (const candidate & c : found) {
            out.emplace_back(c.token, c.logp);
        }
        return out;
    }

    llama_token_model model_;
    int32_t           n_rows_   = 0;
    int32_t           n_levels_ = 1;
    cpu::experts_read experts_;
};

} // namespace

void register_probe(py::module_ & m) {
    py::class_<probe>(m, "Probe")
        .def(py::init([](const model_options & options, bool is_draft) {
                 ask_guard();
                 const py::gil_scoped_release released;
                 return std::make_unique<probe>(options, is_draft);
             }),
             "options"_a, "is_draft"_a = false)
        .def("decode", &probe::decode, "tokens"_a, "pos"_a = 0, "states"_a = py::none(), "only_last"_a = false,
             "n_levels"_a = 1)
        .def("encode", &probe::encode, "features"_a)
        .def("states", &probe::states)
        .def_property_readonly("experts_read",
                               [](const probe & p) {
                                   const cpu::experts_read & x = p.experts();
                                   return std::tuple(x.n_products, x.n_experts, x.n_bytes);
                               })
        .def(
            "expert_recall",
            [](const probe & p, size_t budget) {
                std::map<std::string, double> out;
                const auto *                  ahead = p.model().experts();
                const auto *                  known = ahead == nullptr ? nullptr : ahead->forecast();
                for (size_t i = 0; known != nullptr && i < expert_forecast::names.size(); ++i) {
                    out[expert_forecast::names[i]] = known->recall(i).at(budget);
                }
                return out;
            },
            "budget"_a)
        .def("mark", &probe::mark)
        .def("logits", &probe::logits)
        .def("levels", &probe::levels)
        .def("features", &probe::features)
        .def("candidates", &probe::candidates, "row"_a, "sampling"_a, "text"_a, "n"_a)
        .def("chances", &probe::chances, "row"_a, "sampling"_a, "text"_a)
        .def_property_readonly("n_sorted", [](const probe & p) { return p.model().sampler()->n_sorted(); })
        .def_property_readonly("n_vocab", [](const probe & p) { return p.model().facts().n_vocab; })
        .def_property_readonly("n_ctx", [](const probe & p) { return p.model().facts().n_ctx; })
        .def_property_readonly("n_bytes", [](const probe & p) { return p.model().weights().n_bytes(); })
        .def_property_readonly("same_bits", [](const probe & p) { return p.model().weights().same_bits(); })
        .def_property_readonly("uses_stock", [](const probe & p) { return p.model().weights().kernels.stock; })
        .def_property_readonly("n_duo_products", [](const probe & p) { return p.model().weights().kernels.n_duo; })
        .def_property_readonly("n_proposed", [](const probe & p) { return p.model().facts().n_proposed; })
        .def_property_readonly("packed_as", [](const probe & p) { return p.model().weights().kernels.packed_as; })
        .def_property_readonly("n_from_file", [](const probe & p) { return p.model().weights().n_from_file; })
        .def_property_readonly("n_read_ahead", [](const probe & p) { return p.model().weights().n_read_ahead(); })
        .def_property_readonly("packed_file",
                               [](const probe & p) { return path_text(p.model().weights().packed_file); })
        .def_property_readonly("warning", [](const probe & p) { return text_of(p.model().weights().warning); })
        .def_property_readonly("n_cpu_products", [](const probe & p) { return p.model().weights().kernels.n_cpu; })
        .def("tokenize",
             [](const probe & p, const std::string & text) { return p.model().vocabulary.tokenize(text, true, true); });

    m.def("kernels", [] {
        hear_guard(); // it may disable an instruction set, so it comes before the first use
        const std::string why = cpu::why_no_kernels();
        return py::make_tuple(why.empty() ? cpu::kernels_name() : "", why);
    });
    m.def("keeps_layer_inputs", &keeps_layer_inputs, "architecture"_a); // so that a head can be trained for them
    m.def("runs_mtp", &runs_mtp, "architecture"_a);
    m.def("other_ggml", &cpu::other_ggml);
    m.def(
        "cpu_types",
        [](const std::string & path, int32_t n_gpu_layers,
           const std::vector<std::pair<std::string, std::string>> & overrides) {
            return weight_placement(path, {}, n_gpu_layers, overrides).cpu_types();
        },
        "path"_a, "n_gpu_layers"_a, "overrides"_a = std::vector<std::pair<std::string, std::string>>());
    m.def(
        "cpu_weight_bytes",
        [](const std::string & path, int32_t n_gpu_layers, std::pair<std::string, std::vector<std::string>> packing) {
            const weight_packing p{std::move(packing.first), std::move(packing.second)};
            return weight_placement(path, {}, n_gpu_layers, {}, false, p).cpu_bytes();
        },
        "path"_a, "n_gpu_layers"_a, "packing"_a = std::pair<std::string, std::vector<std::string>>());
    m.def("packed_bytes", &cpu::packed_bytes, "type"_a, "n_columns"_a, "n_rows"_a);
    m.def("packed_types", &cpu::packed_type_names);
    m.attr("RACE_BYTES")      = cpu::race_bytes;
    m.attr("KERNELS_VERSION") = cpu::kernels_version;
    m.def("kernel_types", &cpu::kernel_types);
    m.def(
        "race",
        [](const std::string & type, const std::vector<int> & widths, const std::vector<int> & teams, int64_t n_us) {
            ask_guard();
            const std::vector<cpu::team_race> found = [&] {
                const py::gil_scoped_release released;
                stock_kernels_used();
                return cpu::race(type, widths, teams, n_us);
            }();
            py::list out;
            for (const cpu::team_race & team : found) {
                py::list times;
                for (const cpu::race_time & t : team.times) {
                    times.append(py::make_tuple(t.stock_us, t.duo_us));
                }
                out.append(py::make_tuple(team.ahead, times));
            }
            return out;
        },
        "type"_a, "widths"_a, "teams"_a, "n_us"_a);
    m.def("read_ahead_of", &cpu::read_ahead_of, "type"_a, "n_bytes"_a);
    m.def(
        "product_errors",
        [](const std::string & type, const py::bytes & weights, int64_t n_columns, int width) {
            ask_guard();
            const std::string_view   bytes(weights);
            const cpu::product_error e = [&] {
                const py::gil_scoped_release released;
                stock_kernels_used();
                return cpu::product_errors(type, bytes, n_columns, width);
            }();
            return py::make_tuple(e.stock, e.duo);
        },
        "type"_a, "weights"_a, "n_columns"_a, "width"_a);
}

} // namespace duo
