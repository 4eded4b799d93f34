// The limits of what another process may ask for.
#include <cmath>
#include <type_traits>

#include "check.h"
#include "pair.h"
#include "remote/message_check.h"
#include "remote/target_link.h"
#include "wires/message_limits.h"

using namespace duo_test;

namespace {

template <typename F> bool passed(const F & f) {
    try {
        f();
        return true;
    } catch (const duo::error &) {
        return false;
    }
}

} // namespace

// Whatever the table says, and no more.
TEST(each_limit_is_kept) {
    const text_params text{.id = request_node(1), .prompt = {1}, .stop = {}, .sampling = {}, .plan = {}};
    const auto        passes = [&](auto change) {
        text_params t = text;
        change(t);
        return passed([&t] { check_text(t); });
    };
    each_sampling_limit([&](const char * name, auto member, double least, double most) {
        const auto with = [&](double x) {
            return passes([&](text_params & t) {
                auto & to = t.sampling.*member;
                to        = std::remove_reference_t<decltype(to)>(x);
            });
        };
        CHECK(with(least) && with(most), name);
        CHECK(!with(least - 1.0), name);
        CHECK(most >= INT32_MAX || !with(1.1 * most + 1.0), name);
    });
    each_plan_limit([&](const char * name, auto get, double least, double most) {
        CHECK(get(text.plan) >= least && get(text.plan) <= most, name);
    });
    CHECK(!passes([](text_params & t) { t.plan.n_branch = n_step_cap + 1; }));
    CHECK(!passes([](text_params & t) { t.plan.n_min = n_draft_cap + 1; }));
    CHECK(!passes([](text_params & t) { t.plan.ngram.size_n = 0; }));
    CHECK(!passes([](text_params & t) { t.plan.ngram.size_m = 1025; }));
    CHECK(!passes([](text_params & t) { t.plan.ngram.min_hits = 0; }));
    CHECK(passes([](text_params & t) { t.n_logprobs = n_logprobs_most; }));
    CHECK(!passes([](text_params & t) { t.n_logprobs = n_logprobs_most + 1; }));
    CHECK(!passes([](text_params & t) { t.stop.assign(n_stops_most + 1, "x"); }));
    CHECK(!passes([](text_params & t) { t.stop.assign(1, std::string(n_stop_bytes_most + 1, 'x')); }));
    CHECK(!passes([](text_params & t) { t.sampling.logit_bias.assign(n_bias_most + 1, {1, 1.0f}); }));
    CHECK(!passes([](text_params & t) { t.sampling.logit_bias.assign(1, {1, INFINITY}); }));
    CHECK(passes([](text_params & t) { t.sampling.logit_bias.assign(1, {1, -INFINITY}); }));
    CHECK(!passes([](text_params & t) { t.sampling.grammar.assign(n_grammar_bytes_most + 1, '#'); }));
    CHECK(!passes([](text_params & t) { t.plan.tree = {{n_rank_most + 1}}; }));
    CHECK(!passes([](text_params & t) { t.plan.tree = {std::vector<int32_t>(n_tree_most + 1, 0)}; }));
}

// The local draft keeps the text as the verdicts tell it.
TEST(a_verify_host_cannot_make_a_text_grow_for_ever) {
    const behaviour b{};
    scripted_model  draft(b);
    pipeline        line(nullptr, &draft, {.n_ctx_remote = b.n_ctx});
    target_link     link(std::make_shared<target_lines>(line.ends(), 1, draft.facts().n_vocab, b.n_ctx), 0);
    const ask       q{.n_predict = 40};
    line.begin(q.as(run_mode::async).make());
    REQUIRE(link.wait_begin(now_us() + patience_us).has_value(), "offered");
    const auto give = [&] {
        int n = 0;
        for (; n < 4 * b.n_ctx; ++n) {
            std::vector<node_msg> nodes;
            link.take(nodes, now_us());
            if (!passed([&] {
                    link.give(std::vector<verdict_msg>{{.what = verdict_msg::kind::verdict, .token = 3}}, {});
                })) {
                break;
            }
        }
        return n;
    };
    CHECK_EQ(give(), b.n_ctx - int32_t(q.prompt.size()));
    link.restart(); // another connection, another count
    CHECK_EQ(give(), b.n_ctx - int32_t(q.prompt.size()));
    link.fail({.sentence = "enough"});
    CHECK_EQ(read_all(line).finish, finish_reason::error);
}
