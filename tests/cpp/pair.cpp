#include "pair.h"

namespace duo_test {

std::unique_ptr<request> ask::make() const {
    auto r        = std::make_unique<request>();
    r->prompt     = prompt;
    r->n_predict  = n_predict;
    r->n_logprobs = n_logprobs;
    r->stop       = stop;
    r->sampling   = sampling;
    r->plan       = plan;
    r->shift      = shift;
    r->pictures   = pictures;
    r->scales     = scales;
    return r;
}

ask ask::as(run_mode mode, int32_t n_max) const {
    ask a         = *this;
    a.plan.mode   = mode;
    a.plan.n_max  = n_max;
    a.plan.always = n_max != n_draft_auto; // a width that a test names is used
    return a;
}

bool is_beginning(const std::vector<token_id> & part, const std::vector<token_id> & whole) {
    return part.size() <= whole.size() && std::equal(part.begin(), part.end(), whole.begin());
}

bool next_chunk(pipeline & p, open_text & text, text_chunk & out) {
    for (int64_t waited = 0; waited < patience_us; waited += wait_us) {
        if (p.next(text, out, now_us() + wait_us)) {
            return true;
        }
    }
    return false;
}

bool read_some(pipeline & p, open_text & text, answer & a, size_t n) {
    text_chunk c;
    while (a.tokens.size() < n) {
        REQUIRE(next_chunk(p, text, c), "no chunk came for a minute");
        a.text += c.text;
        CHECK_EQ(utf8_valid(c.text), c.text);
        if (c.finish != finish_reason::none) {
            CHECK_EQ(c.token, no_token);
            a.finish  = c.finish;
            a.stats   = text.req().stats;
            a.error   = text.req().error;
            a.warning = text.req().warning;
            return false;
        }
        a.tokens.push_back(c.token);
        a.from_draft.push_back(c.from_draft);
        a.logps.push_back(c.logp);
        a.tops.push_back(c.top);
    }
    return true;
}

bool read_some(pipeline & p, answer & a, size_t n) {
    const bool more = read_some(p, *p.current(), a, n);
    CHECK(more || !p.running());
    return more;
}

answer read_all(pipeline & p) {
    answer a;
    read_some(p, a, size_t(-1));
    return a;
}

answer run_errand(pipeline & p, errand & job, std::vector<token_id> prompt, int32_t place) {
    auto r    = std::make_unique<request>();
    r->job    = std::shared_ptr<errand>(std::shared_ptr<void>(), &job);
    r->prompt = std::move(prompt);
    r->wanted = place;
    p.begin(std::move(r));
    return read_all(p);
}

errand given(const errand & saved) {
    errand job{.what = errand::kind::restore};
    job.target = {.tokens = saved.target.tokens, .given = saved.target.saved};
    job.draft  = {.tokens = saved.draft.tokens, .given = saved.draft.saved};
    return job;
}

answer reference(const language & lang, int32_t n_ctx, const ask & q) {
    answer                a;
    std::vector<token_id> text = q.prompt;
    std::string           bytes;
    a.finish = q.n_predict == 0 ? finish_reason::length : finish_reason::none;
    while (a.finish == finish_reason::none) {
        auto all = lang.after(text);
        if (q.n_logprobs >= 0) {
            a.tops.emplace_back(all.begin(), all.begin() + q.n_logprobs);
        }
        const auto raw = all;
        language::choose(all, q.sampling, text);
        const token_id t = all.front().token;
        text.push_back(t);
        a.tokens.push_back(t);
        for (const candidate & c : raw) {
            if (c.token == t && q.n_logprobs >= 0) {
                a.logps.push_back(c.logp);
                break;
            }
        }
        if (t == 0) {
            a.finish = finish_reason::stop;
            break;
        }
        bytes += language::piece(t);
        size_t first = std::string::npos;
        for (const std::string & s : q.stop) {
            first = std::min(first, bytes.find(s));
        }
        if (first != std::string::npos) {
            bytes.resize(first);
            a.finish = finish_reason::stop;
        } else if (int32_t(a.tokens.size()) == q.n_predict || (int32_t(text.size()) == n_ctx && !q.shift.on)) {
            a.finish = finish_reason::length;
        }
    }
    a.text = utf8_valid(bytes);
    return a;
}

void check_stats(const answer & a, const ask & q, const std::string & note) {
    const verify_stats & st  = a.stats;
    const auto           sum = [](const auto & xs) { return std::accumulate(xs.begin(), xs.end(), 0); };
    CHECK_EQ(st.n_prompt, int32_t(q.prompt.size()), note);
    CHECK(st.n_prompt_cached < st.n_prompt, note);
    CHECK_EQ(st.n_predicted, int32_t(a.tokens.size()), note);
    CHECK_EQ(st.n_accepted, int32_t(std::count(a.from_draft.begin(), a.from_draft.end(), true)), note);
    CHECK(st.n_accepted <= st.n_drafted, note);
    // Each pass gives its accepted tokens and one of the target's own, unless the text ends with an accepted one.
    const int32_t cut = !a.from_draft.empty() && a.from_draft.back() && a.finish != finish_reason::cancelled &&
                                a.finish != finish_reason::error
                            ? 1
                            : 0;
    CHECK_EQ(st.n_predicted, st.n_passes + st.n_accepted - cut, note);
    CHECK_EQ(sum(st.n_accepted_at), st.n_accepted, note);
    CHECK(sum(st.n_tested_at) <= st.n_drafted, note);
    for (size_t i = 0; i < st.n_tested_at.size(); ++i) {
        CHECK(st.n_accepted_at[i] <= st.n_tested_at[i], note);
        CHECK(i == 0 || st.n_tested_at[i] <= st.n_accepted_at[i - 1], note);
    }
    CHECK_EQ(sum(st.n_tested_of_age), 0, note); // this is no draft head
    CHECK(st.n_verifications <= st.n_passes && st.n_hits <= st.n_passes && st.n_verifications <= st.n_drafted, note);
    CHECK_EQ(sum(st.n_passes_in), st.n_passes, note);
    // Of a tree one path is the best; what is accepted is on it, or in a side branch.
    CHECK(st.n_path >= st.n_verifications && st.n_path <= st.n_drafted, note);
    CHECK(st.n_path_accepted <= st.n_path && st.n_path_accepted <= st.n_accepted, note);
    CHECK(st.n_side <= st.n_accepted - st.n_path_accepted, note);
    CHECK(st.n_accepted - st.n_path_accepted <= st.n_drafted - st.n_path, note);
    CHECK(st.n_ngram <= st.n_drafted && st.n_ngram_accepted <= st.n_ngram && st.n_ngram_accepted <= st.n_accepted,
          note);
    CHECK(st.n_ngram - st.n_ngram_accepted <= st.n_drafted - st.n_accepted, note);
    if (q.plan.ngram.kind == ngram_kind::none || !q.plan.tree.empty()) {
        CHECK_EQ(st.n_ngram, 0, note);
    } else if (!q.plan.has_model) {
        CHECK_EQ(st.n_ngram, st.n_drafted, note);
        CHECK_EQ(st.wait_us, 0, note);
    }
    if (q.plan.use == tree_use::chain && q.plan.tree.empty()) {
        CHECK_EQ(st.n_path, st.n_drafted, note);
        CHECK_EQ(st.n_side, 0, note);
    }
    if (q.plan.mode == run_mode::plain || q.plan.n_max == 0) {
        CHECK_EQ(st.n_drafted, 0, note);
        CHECK_EQ(st.wait_us, 0, note);
    } else if (!q.plan.tree.empty()) {
        CHECK(st.n_drafted <= st.n_verifications * tree_shape(q.plan.tree).n_nodes(), note);
    } else if (q.plan.n_max > 0) {
        CHECK(st.n_drafted <= st.n_verifications * q.plan.n_max, note);
    }
    CHECK(st.n_drafted >= st.n_verifications * std::max(1, q.plan.n_min), note);
    if (st.n_predicted > 0) {
        CHECK(st.t_begin_us <= st.t_first_us && st.t_first_us <= st.t_end_us, note);
        CHECK(st.prompt_us >= 0 && st.busy_us >= 0 && st.wait_us >= 0, note);
        CHECK(st.busy_us + st.wait_us <= st.t_end_us - st.t_begin_us + 10, note);
    }
}

void check_same(const answer & got, const answer & want, const std::string & note) {
    CHECK_EQ(got.error.sentence, std::string(), note);
    CHECK_EQ(got.tokens, want.tokens, note);
    CHECK_EQ(got.text, want.text, note);
    CHECK_EQ(got.finish, want.finish, note);
}

namespace {
behaviour as_target(behaviour b) {
    b.sinks = false;
    return b;
}
} // namespace

pair::pair(const behaviour & t, const std::optional<behaviour> & d, bool tracing, const pair_prior & prior)
    : lang(t.lang), n_ctx(t.n_ctx), target(as_target(t)), draft(d ? *d : t),
      line(&target, d ? &draft : nullptr, {.tracing = tracing, .prior = prior}) {
}

pair::~pair() = default;

answer pair::run(const ask & q, const std::string & note) {
    line.begin(q.make());
    const answer a = read_all(line);
    check_same(a, reference(lang, n_ctx, q), note);
    check_stats(a, q, note);
    return a;
}

void pair::begin_with_hanging_draft(const ask & q) {
    line.begin(q.make());
    draft.wait_until_hanging();
    target.release();
}

} // namespace duo_test
