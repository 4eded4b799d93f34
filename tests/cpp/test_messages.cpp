// What a hostile peer sends is refused, and whatever is let through does no harm.
#include <cmath>

#include "base/error.h"
#include "markov.h"
#include "pair.h"
#include "remote/draft_host.h"
#include "remote/message_check.h"
#include "remote/target_link.h"
#include "remote/verify_host.h"

using namespace duo_test;

namespace {

template <typename F> bool refused(const F & f) {
    try {
        f();
    } catch (const duo::error &) {
        return true;
    }
    return false;
}

// A number that is often at an edge.
int64_t odd(dice & d) {
    static const int64_t edges[] = {0, 1, -1, 2, 63, 64, 255, 32767, -32768, 2147483647, -2147483648ll};
    return d.chance(0.5) ? edges[d.below(11)] : int64_t(d.below(100));
}

text_params some_text(dice & d) {
    text_params t;
    t.id          = d.chance(0.9) ? request_node(1 + d.below(3)) : node_id(odd(d));
    t.prompt      = {1, 2, 3};
    t.n_predict   = int32_t(d.chance(0.7) ? 1 + d.below(30) : odd(d));
    t.n_generated = int32_t(d.chance(0.7) ? 0 : odd(d));
    t.n_logprobs  = int32_t(d.chance(0.7) ? -1 : odd(d) % 5);
    if (d.chance(0.2)) {
        t.prompt.push_back(token_id(odd(d)));
    }
    t.sampling.temp = d.chance(0.8) ? 0.0f : d.chance(0.5) ? NAN : float(odd(d));
    t.plan.n_max    = int32_t(d.chance(0.8) ? 4 : odd(d));
    if (d.chance(0.1)) {
        t.plan.tree.assign(1, std::vector<int32_t>(d.below(80), int32_t(odd(d))));
    }
    return t;
}

verdict_msg some_verdict(dice & d) {
    return {.what         = verdict_msg::kind(d.below(5)),
            .accepted     = d.chance(0.7) ? d.below(40) : node_id(odd(d)),
            .token        = token_id(odd(d)),
            .n_ahead      = int16_t(odd(d)),
            .n_branch     = int16_t(odd(d)),
            .n_want       = int16_t(odd(d)),
            .branch_price = int16_t(d.chance(0.8) ? 1000 : odd(d)),
            .least_path   = int16_t(d.chance(0.8) ? 100 : odd(d)),
            .sharpness    = int16_t(d.chance(0.8) ? -200 : odd(d))};
}

node_msg some_node(dice & d) {
    return {.what    = node_msg::kind(d.below(7)),
            .guess   = d.chance(0.5),
            .id      = d.chance(0.8) ? 1 + d.below(60) : node_id(odd(d)),
            .parent  = d.chance(0.3) ? request_node(1 + d.below(3)) : d.below(60),
            .token   = token_id(odd(d)),
            .logp    = d.chance(0.8)   ? -float(d.below(5))
                       : d.chance(0.5) ? NAN
                                       : float(odd(d)),
            .rank    = int16_t(odd(d)),
            .n_rows  = int16_t(odd(d)),
            .step_us = float(odd(d))};
}

chunk_msg some_chunk(dice & d) {
    return {.what   = chunk_msg::kind(d.below(3)),
            .hidden = d.chance(0.2),
            .finish = finish_reason(d.below(5)),
            .token  = token_id(odd(d)),
            .n_hold = int32_t(odd(d)),
            .n_drop = int32_t(odd(d))};
}

} // namespace

TEST(impossible_messages_are_refused) {
    const node_msg node{.id = 1, .parent = request_node(1), .token = 3};
    check_node(node, 40);
    const auto bad_node = [&](auto change) {
        return refused([&] {
            node_msg n = node;
            change(n);
            check_node(n, 40);
        });
    };
    CHECK(bad_node([](node_msg & n) { n.token = 40; }));
    CHECK(bad_node([](node_msg & n) { n.token = -1; }));
    CHECK(bad_node([](node_msg & n) { n.logp = NAN; }));
    CHECK(bad_node([](node_msg & n) { n.logp = 2.0f; }));
    CHECK(bad_node([](node_msg & n) { n.step_us = -1.0f; }));
    CHECK(bad_node([](node_msg & n) { n.id = request_node(1); }));
    CHECK(bad_node([](node_msg & n) { n.what = node_msg::kind::ready; }));
    const auto bad_share = [&](auto change) {
        return bad_node([&](node_msg & n) {
            n.what = node_msg::kind::share;
            check_node(n, 40);
            change(n);
        });
    };
    CHECK(bad_share([](node_msg & n) { n.token = 40; }));
    CHECK(bad_share([](node_msg & n) { n.token = -1; }));
    CHECK(bad_share([](node_msg & n) { n.logp = -INFINITY; }));
    CHECK(bad_share([](node_msg & n) { n.logp = 0.5f; }));

    text_params text{.id = request_node(1), .prompt = {1}, .stop = {}, .sampling = {}, .plan = {}};
    check_text(text);
    const auto bad_text = [&](auto change) {
        return refused([&] {
            text_params t = text;
            change(t);
            check_text(t);
        });
    };
    CHECK(bad_text([](text_params & t) { t.prompt.clear(); }));
    CHECK(bad_text([](text_params & t) { t.prompt[0] = -1; }));
    CHECK(bad_text([](text_params & t) { t.n_generated = 2; }));
    CHECK(bad_text([](text_params & t) { t.stop.assign(1, ""); }));
    CHECK(bad_text([](text_params & t) { t.sampling.temp = NAN; }));
    CHECK(bad_text([](text_params & t) { t.sampling.typical_p = 1.5f; }));
    CHECK(bad_text([](text_params & t) { t.sampling.top_n_sigma = NAN; }));
    CHECK(bad_text([](text_params & t) { t.sampling.xtc_probability = -0.1f; }));
    CHECK(bad_text([](text_params & t) { t.sampling.xtc_threshold = NAN; }));
    CHECK(bad_text([](text_params & t) { t.sampling.dynatemp_range = -1.0f; }));
    CHECK(bad_text([](text_params & t) { t.sampling.dynatemp_exponent = INFINITY; }));
    CHECK(bad_text([](text_params & t) { t.sampling.dry_multiplier = NAN; }));
    CHECK(bad_text([](text_params & t) { t.sampling.dry_base = 0.5f; }));
    CHECK(bad_text([](text_params & t) { t.sampling.dry_allowed_length = -1; }));
    CHECK(bad_text([](text_params & t) { t.sampling.dry_penalty_last_n = -2; }));
    CHECK(bad_text([](text_params & t) { t.sampling.dry_sequence_breakers = {""}; }));
    CHECK(bad_text([](text_params & t) { t.sampling.dry_sequence_breakers.assign(65, "x"); }));
    CHECK(bad_text([](text_params & t) { t.sampling.dry_sequence_breakers = {std::string(41, 'x')}; }));
    CHECK(bad_text([](text_params & t) { t.sampling.accept = accept_rule(4); }));
    CHECK(bad_text([](text_params & t) { t.sampling.posterior_threshold = NAN; }));
    CHECK(bad_text([](text_params & t) { t.sampling.posterior_alpha = 1.5f; }));
    CHECK(bad_text([](text_params & t) { t.sampling.accept_top = 0; }));
    CHECK(bad_text([](text_params & t) { t.plan.n_max = 65; }));
    CHECK(bad_text([](text_params & t) {
        t.plan.tree.assign(65, {0, 0});
        t.plan.tree[3] = {70};
    }));
}

TEST(a_draft_host_survives_a_hostile_target) {
    scripted_model m(behaviour{});
    draft_host     host(m, 1);
    for (uint64_t seed = 0; seed < 300; ++seed) {
        dice d(seed);
        refused([&] { host.begin(0, some_text(d)); });
        std::vector<node_msg> nodes;
        for (size_t i = 0; i < d.below(40); ++i) {
            refused([&] { host.give(0, std::vector<verdict_msg>{some_verdict(d)}); });
            host.take(0, nodes, now_us() + int64_t(d.below(200)));
        }
        REQUIRE(host.end(0, now_us() + patience_us), "the host lets go");
    }
}

TEST(a_verify_host_survives_nonsense_about_draws) {
    markov_model m({}, {});
    verify_host  host(m, 1);
    for (uint64_t seed = 0; seed < 100; ++seed) {
        dice        d(seed);
        text_params t{
            .id = request_node(1), .prompt = {1, 2}, .n_predict = 200, .stop = {}, .sampling = {}, .plan = {}};
        t.sampling.temp   = 1.0f;
        t.sampling.accept = accept_rule(d.below(4));
        t.plan.n_max      = 4;
        t.plan.always     = true;
        host.begin(0, t);
        std::vector<verdict_msg> verdicts;
        std::vector<chunk_msg>   chunks;
        host.give(0, std::vector<node_msg>{{.guess = false, .id = 1, .parent = t.id, .token = 2}});
        for (node_id id = 2; id < 80; ++id) { // likely tokens, in any order and with any probabilities
            const node_msg n{.what   = d.chance(0.5) ? node_msg::kind::share : node_msg::kind::node,
                             .id     = id,
                             .parent = d.chance(0.3) ? 1 : 1 + d.below(uint32_t(id - 1)),
                             .token  = token_id(1 + d.below(6)),
                             .logp   = -float(d.below(60)) * 0.1f,
                             .rank   = int16_t(d.below(3))};
            host.give(0, std::vector<node_msg>{n});
            host.take(0, verdicts, chunks, now_us() + int64_t(d.below(20)));
        }
        host.cancel(0);
        host.take(0, verdicts, chunks, now_us());
        CHECK(!host.running(0));
        for (const chunk_msg & c : chunks) {
            CHECK(c.what != chunk_msg::kind::token || (c.token >= 1 && c.token <= markov{}.n_tokens));
        }
    }
}

TEST(a_verify_host_survives_a_hostile_client) {
    scripted_model m(behaviour{});
    verify_host    host(m, 1);
    for (uint64_t seed = 0; seed < 300; ++seed) {
        dice d(seed);
        refused([&] { host.begin(0, some_text(d)); });
        std::vector<verdict_msg> verdicts;
        std::vector<chunk_msg>   chunks;
        for (size_t i = 0; i < d.below(40); ++i) {
            refused([&] { host.give(0, std::vector<node_msg>{some_node(d)}); });
            host.take(0, verdicts, chunks, now_us() + int64_t(d.below(200)));
        }
        host.cancel(0);
        CHECK(!host.running(0));
    }
    // And serves the next one as if nothing had been.
    text_params text{.id        = request_node(7),
                     .prompt    = {3, 1, 2},
                     .n_predict = 20,
                     .stop      = {},
                     .sampling  = {.temp = 0.0f},
                     .plan      = {}};
    host.begin(0, text);
    std::vector<verdict_msg> verdicts;
    std::vector<chunk_msg>   chunks;
    while (host.running(0)) {
        host.take(0, verdicts, chunks, now_us() + 10000);
    }
    const answer want = reference({}, 512, ask{.n_predict = 20});
    REQUIRE_EQ(chunks.size(), want.tokens.size() + 1, "the text and its end");
    for (size_t i = 0; i < want.tokens.size(); ++i) {
        CHECK_EQ(chunks[i].token, want.tokens[i]);
    }
}

TEST(links_survive_hostile_hosts) {
    const behaviour b{};
    for (uint64_t seed = 0; seed < 100; ++seed) {
        dice           d(seed);
        scripted_model target(b);
        scripted_model draft(b);
        {
            pipeline   line(&target, nullptr, {.remote_draft = true});
            draft_link link(std::make_shared<draft_lines>(line.ends(), 1, target.facts().n_vocab), 0);
            link.ready();
            const ask q = ask{.n_predict = 40}.as(run_mode::async);
            line.begin(q.make());
            std::vector<verdict_msg> verdicts;
            link.wait_begin(now_us() + 1000);
            while (!link.take(verdicts, now_us()) || verdicts.back().what != verdict_msg::kind::end) {
                refused([&] { link.give(std::vector<node_msg>{some_node(d)}); });
                answer a;
                if (!line.running()) {
                    break;
                }
                text_chunk c;
                if (line.next(*line.current(), c, now_us()) && c.finish != finish_reason::none) {
                    break;
                }
            }
            line.cancel(*line.current());
        }
        {
            pipeline    line(nullptr, &draft, {.n_ctx_remote = 512});
            target_link link(std::make_shared<target_lines>(line.ends(), 1, draft.facts().n_vocab, 512), 0);
            line.begin(ask{.n_predict = 40}.make());
            REQUIRE(link.wait_begin(now_us() + patience_us).has_value(), "offered");
            for (size_t i = 0; i < d.below(60) && link.running(); ++i) {
                refused([&] {
                    link.give(std::vector<verdict_msg>{some_verdict(d)}, std::vector<chunk_msg>{some_chunk(d)});
                });
                if (d.chance(0.05)) {
                    link.restart();
                }
            }
            link.fail({.sentence = "enough"});
            answer a = read_all(line);
            CHECK(a.finish != finish_reason::none);
            CHECK(a.tokens.size() <= 40);
        }
    }
}
