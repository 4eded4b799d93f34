#include "asks.h"

namespace duo_test {

std::vector<std::vector<int32_t>> random_shape(dice & d) {
    std::vector<std::vector<int32_t>> paths(size_t(d.between(1, 8)));
    size_t                            n_left = 20;
    for (auto & path : paths) {
        path.resize(std::min(n_left, size_t(d.between(1, 5))));
        n_left -= path.size();
        for (int32_t & rank : path) {
            rank = d.chance(0.5) ? 0 : d.between(0, 3);
        }
    }
    std::erase_if(paths, [](const auto & path) { return path.empty(); });
    return paths;
}

ask random_ask(dice & d, const language & lang, int32_t n_ctx) {
    ask q;
    q.prompt.resize(size_t(d.between(1, std::min(n_ctx - 1, d.chance(0.1) ? 60 : 8))));
    for (token_id & t : q.prompt) {
        t = token_id(d.below(uint32_t(lang.n_vocab)));
    }
    q.n_predict  = d.chance(0.05) ? -1 : d.between(0, 25);
    q.n_logprobs = d.chance(0.2) ? d.between(0, 5) : -1;
    if (d.chance(0.2)) {
        q.stop = {"ba", "c a"};
    }
    q.sampling.temp             = d.chance(0.4) ? 0.9f : 0.0f;
    q.sampling.seed             = d.below(4);
    q.sampling.presence_penalty = d.chance(0.2) ? 1.0f : 0.0f;
    q.plan.mode                 = d.chance(0.7) ? run_mode::async : d.chance(0.7) ? run_mode::sync : run_mode::plain;
    q.plan.n_max                = d.chance(0.4) ? n_draft_auto : d.between(0, 12);
    q.plan.always               = q.plan.n_max != n_draft_auto;
    q.plan.n_min                = d.chance(0.15) ? d.between(1, 4) : 0;
    q.plan.p_min                = d.chance(0.15) ? 0.8f : 0.0f;
    q.plan.n_branch             = d.chance(0.6) ? d.between(0, 16) : 0;
    q.plan.use = d.chance(0.2) ? tree_use::chain : d.chance(0.6) ? tree_use::dynamic : tree_use::automatic;
    if (d.chance(0.15)) {
        q.plan.tree = random_shape(d);
    }
    if (d.chance(0.3)) {
        q.plan.ngram     = {.kind     = ngram_kind(d.between(1, 4)),
                            .size_n   = d.between(1, 4),
                            .size_m   = d.between(1, 12),
                            .min_hits = d.between(1, 2)};
        q.plan.has_model = d.chance(0.8);
    }
    if (d.chance(0.2) && n_ctx > 4) { // beyond the context's end
        q.shift      = {.on        = true,
                        .n_keep    = d.chance(0.5) ? d.between(0, int32_t(q.prompt.size())) : 0,
                        .n_discard = d.chance(0.3) ? d.between(1, 2 * n_ctx) : 0};
        q.n_predict  = d.between(1, std::min(4 * n_ctx, 150));
        q.n_logprobs = -1; // those of the model depend on what it has read
    }
    q.plan.n_window = d.chance(0.5) ? d.between(1, 12) : d.between(duo::n_window_auto, duo::n_window_all);
    if (d.chance(0.1)) { // a text that has a middle
        q.prompt.resize(size_t(d.between(1, std::min(n_ctx - 1, 60))), q.prompt.front());
        for (size_t i = 1; i < q.prompt.size(); ++i) {
            q.prompt[i] = token_id((q.prompt[i - 1] * 7 + token_id(i)) % lang.n_vocab);
        }
    }
    return q;
}

void put_pictures(ask & q, dice & d) {
    for (int32_t i = d.between(1, 3); i > 0; --i) {
        const int32_t         kind   = d.between(0, 3);
        const int32_t         n_rows = 3 + 9 * (kind / 2); // of two kinds each, which begin alike
        std::vector<token_id> rows;
        for (int32_t row = 0; row < n_rows; ++row) {
            rows.push_back(first_picture_id + 1000 * (row < 2 ? kind / 2 * 2 : kind) + row);
        }
        auto at = q.prompt.begin() + d.below(q.prompt.size());
        while (row_of_picture(*at) > 0) { // not within another one
            --at;
        }
        q.prompt.insert(at, rows.begin(), rows.end());
    }
    cut_prompt(q, q.prompt.size());
}

namespace {

// With more rows, or fewer, of each picture.
std::shared_ptr<const seen_prompt> prompt_of_draft(const ask & q) {
    seen_prompt               out;
    std::vector<picture_span> spans;
    for (int32_t i = 0; i < int32_t(q.prompt.size()); ++i) {
        const picture_span * seen = q.pictures.at(i);
        if (seen == nullptr) {
            out.tokens.push_back(q.prompt[size_t(i)]);
        } else if (i == seen->first) {
            const int32_t n_rows = seen->n_rows < 10 ? 5 : 2;
            spans.push_back({.first   = int32_t(out.tokens.size()),
                             .n_rows  = n_rows,
                             .content = std::make_shared<scripted_picture>(n_rows)});
            for (int32_t row = 0; row < n_rows; ++row) { // alike up to the second row, where the target's are
                const int32_t of_target = row < 2 ? 0 : 2;
                out.tokens.push_back(q.prompt[size_t(i + of_target)] - of_target + 10000 + row);
            }
        }
    }
    out.pictures = picture_spans(std::move(spans));
    return std::make_shared<const seen_prompt>(std::move(out));
}

} // namespace

void cut_prompt(ask & q, size_t n) {
    q.prompt.resize(n);
    while (!q.prompt.empty() && is_picture(q.prompt.back())) {
        q.prompt.pop_back();
    }
    if (q.prompt.empty()) {
        q.prompt.push_back(1);
    }
    std::vector<picture_span> spans;
    for (size_t i = 0; i < q.prompt.size(); ++i) {
        if (is_picture(q.prompt[i]) && row_of_picture(q.prompt[i]) == 0) {
            spans.push_back({.first = int32_t(i)});
        }
        if (is_picture(q.prompt[i])) {
            ++spans.back().n_rows;
        }
    }
    for (picture_span & s : spans) {
        s.content = std::make_shared<scripted_picture>(s.n_rows);
    }
    q.shift    = spans.empty() ? q.shift : context_shift{}; // a text with pictures is not shifted
    q.pictures = picture_spans(spans);
    if (q.draft_sees && !spans.empty()) {
        q.pictures = picture_spans(std::move(spans), prompt_of_draft(q));
    }
}

} // namespace duo_test
