#include "experts_ahead.h"

#include <algorithm>
#include <atomic>
#include <utility>

namespace duo::cpu {

namespace {
// What was foreseen cost more than it brought: benchmarks/history/larger_than_memory.md.
std::atomic<foresight> foresight_here{foresight::off};

constexpr size_t share_of_experts = 512;              // the memory of the forecast is this part of the experts',
constexpr size_t n_forecast_least = size_t(4) << 20;  // but not less,
constexpr size_t n_forecast_most  = size_t(64) << 20; // and not more
constexpr double layer_us_decay   = 0.95;             // of a layer's time, with each layer
} // namespace

void set_foresight(foresight how) {
    foresight_here.store(how, std::memory_order_relaxed);
}

foresight foresight_now() {
    return foresight_here.load(std::memory_order_relaxed);
}

experts_ahead::experts_ahead(const page_reader & pages, page_system system, std::function<int64_t()> now)
    : pages_(pages), now_(now), fetcher_(std::move(system), std::move(now)) {
}

bool experts_ahead::active() const {
    const foresight how = foresight_now();
    return how == foresight::always || (how == foresight::needed && pages_.reads());
}

void experts_ahead::begin_pass(std::span<const row> rows) {
    rows_.assign(rows.begin(), rows.end());
    i_first_ = 0;
    if (!rows_.empty()) {
        begin_graph();
    }
}

// The first layers are foreseen from the tokens alone.
void experts_ahead::begin_graph() {
    ++round_;
    layer_   = -1;
    n_graph_ = 0;
    make_forecast();
    if (forecast_ == nullptr) {
        return;
    }
    tokens_.clear();
    const size_t n_rest = rows_.size() - i_first_;
    const size_t end    = i_first_ + (n_most_ == 0 ? n_rest : std::min(n_rest, n_most_));
    for (size_t i = i_first_; i < end; ++i) {
        tokens_.push_back(rows_[i].token);
    }
    forecast_->begin(tokens_);
    order(0);
}

// All layers were seen. A model whose layers differ has a forecast for those that are like the last one.
void experts_ahead::make_forecast() {
    const expert_shape known = forecast_ == nullptr ? expert_shape() : forecast_->shape();
    if (seen_.n_layer > 0 && seen_.n_layer != known.n_layer) {
        const size_t n_all = pages_.n_bytes(seen_.n_expert);
        n_bytes_           = n_all / (size_t(seen_.n_layer) * size_t(seen_.n_expert));
        forecast_          = std::make_unique<expert_forecast>(
            seen_, std::clamp(n_all / share_of_experts, n_forecast_least, n_forecast_most));
        if (foresight_now() == foresight::always) {
            forecast_->measure();
        }
    }
}

// What is read for the next pass now is not read again when it begins.
void experts_ahead::expect(std::span<const token_id> tokens) {
    if (expects()) {
        forecast_->begin(tokens);
        ++round_;
        order(0);
        --round_;
    }
}

int32_t experts_ahead::layer_after(int32_t now, size_t n_rows) const {
    const bool wanted = forecast_ != nullptr && now >= 0 && now + 1 < forecast_->shape().n_layer &&
                        !forecast_->shape().needs_all(n_rows) && active();
    return wanted ? now + 1 : -1;
}

void experts_ahead::hear_router(int32_t layer, std::span<const float> scores) {
    if (scores.size() % size_t(forecast_->shape().n_expert) == 0) {
        forecast_->hear_router(layer, scores);
    }
}

void experts_ahead::before_experts(const expert_choice & choice, int32_t n_expert) {
    const int32_t layer = pages_.layer_now();
    if (layer < 0 || layer == layer_ || choice.experts.empty()) { // other weights of the layer
        return;
    }
    if (layer < layer_) { // the next part of a batch
        i_first_ = std::min(i_first_ + n_graph_, rows_.size());
        begin_graph();
    }
    const int64_t t = now_();
    if (layer_ >= 0) {
        const double us = double(t - t_layer_);
        layer_us_       = layer_us_ == 0.0 ? us : layer_us_ * layer_us_decay + us * (1.0 - layer_us_decay);
    } else {
        n_graph_ = choice.n_rows();
        n_most_  = std::max(n_most_, n_graph_);
    }
    t_layer_ = t;
    layer_   = layer;
    seen_    = {.n_layer = pages_.n_layers(), .n_expert = n_expert, .n_used = choice.n_used};
    n_experts_.resize(size_t(seen_.n_layer));
    n_experts_[size_t(layer)] = n_expert;
    if (forecast_ != nullptr && layer < forecast_->shape().n_layer && n_expert == forecast_->shape().n_expert) {
        set_tokens(choice.n_rows());
        forecast_->learn(layer, tokens_, choice);
        order(layer + 1);
    }
}

// Of the graph's rows; in the last layer only of those with an output.
void experts_ahead::set_tokens(size_t n_rows) {
    tokens_.clear();
    const size_t end = std::min(i_first_ + n_graph_, rows_.size());
    for (size_t i = i_first_; i < end; ++i) {
        if (n_rows == n_graph_ || rows_[i].output) {
            tokens_.push_back(rows_[i].token);
        }
    }
    if (tokens_.size() != n_rows) {
        tokens_.assign(n_rows, no_token);
    }
}

void experts_ahead::order(int32_t first) {
    forecast_->choose(first, n_in_time(), chosen_);
    matrices_.clear();
    std::erase_if(chosen_, [this](const layer_expert & e) { return e.expert >= n_experts_[size_t(e.layer)]; });
    for (const layer_expert & e : chosen_) {
        pages_.append(e.layer, e.expert, matrices_);
    }
    fetcher_.fetch(matrices_, round_);
}

// Experts that the disk can bring while a layer is computed. Those in memory take no time.
double experts_ahead::n_in_time() const {
    const double bytes = fetcher_.bytes_per_us() * layer_us_;
    const auto & shape = forecast_->shape();
    return bytes <= 0.0 ? double(shape.n_used)
                        : std::clamp(bytes / (double(n_bytes_) * std::max(fetcher_.missing(), 0.01)), 1.0,
                                     double(shape.n_expert));
}

} // namespace duo::cpu
