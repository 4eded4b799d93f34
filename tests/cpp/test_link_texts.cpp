// Several texts of several clients at one host. Connections break, hang and come back at random, and each text is what
// the target alone would have written.
#include <deque>

#include "asks.h"
#include "lanes.h"

using namespace duo_test;

namespace {

struct total {
    std::atomic<int32_t> n_texts{0}, n_accepted{0}, n_cancelled{0};
    int32_t              n_cuts = 0;
};

// A client: the model that it has, the pipeline, and a carrier for each of its texts.
template <typename Lane> struct client;

template <> struct client<draft_lane> {
    client(const behaviour & target, const behaviour &, int32_t n, draft_host & host, places & free, const weather & w)
        : model(target), line(&model, nullptr, {.remote_draft = true, .n_texts = n}) {
        const auto lines = std::make_shared<draft_lines>(line.ends(), n, model.facts().n_vocab);
        for (int32_t i = 0; i < n; ++i) {
            weather own = w;
            own.seed    = w.seed * 100 + uint64_t(i);
            lanes.emplace_back(std::make_unique<draft_lane>(lines, i, host, free), own);
        }
    }

    scripted_model                  model;
    pipeline                        line;
    std::deque<carrier<draft_lane>> lanes;
};

template <> struct client<verify_lane> {
    client(const behaviour & target, const behaviour & draft, int32_t n, verify_host & host, places & free,
           const weather & w)
        : model(draft), line(nullptr, &model, {.n_ctx_remote = target.n_ctx, .n_texts = n}) {
        const auto lines = std::make_shared<target_lines>(line.ends(), n, model.facts().n_vocab, target.n_ctx);
        for (int32_t i = 0; i < n; ++i) {
            weather own = w;
            own.seed    = w.seed * 100 + uint64_t(i);
            lanes.emplace_back(std::make_unique<verify_lane>(lines, i, host, free), own);
        }
    }

    scripted_model                   model;
    pipeline                         line;
    std::deque<carrier<verify_lane>> lanes;
};

ask some_ask(dice & d, uint64_t seed) {
    ask q{.n_predict = d.between(10, 120)};
    q.prompt.resize(size_t(d.between(1, 40)));
    for (token_id & t : q.prompt) {
        t = token_id(d.below(40));
    }
    const int32_t n_max = d.chance(0.5) ? 4 : n_draft_auto;
    q                   = q.as(d.chance(0.2) ? run_mode::sync : run_mode::async, n_max);
    if (d.chance(0.3)) {
        q.sampling = {.temp = 0.8f, .presence_penalty = 0.5f, .repeat_last_n = 4, .seed = seed};
    }
    if (d.chance(0.2)) {
        q.stop       = {"abca", "\xe2\x82\xac"};
        q.n_logprobs = 2;
    }
    if (d.chance(0.2)) {
        q.plan.use = tree_use::dynamic;
    }
    return q;
}

// Asks one text after the other; some are cancelled.
void read_texts(pipeline & line, const language & lang, int32_t n_ctx, int32_t n_texts, uint64_t seed, total & sum) {
    dice d(seed);
    for (int32_t i = 0; i < n_texts; ++i) {
        const ask         q    = some_ask(d, seed);
        const std::string note = "seed " + std::to_string(seed) + " text " + std::to_string(i);
        const auto        text = line.begin(q.make());
        const answer      want = reference(lang, n_ctx, q);
        const size_t      n    = d.chance(0.15) ? d.below(10) : size_t(-1);
        answer            a;
        ++sum.n_texts;
        if (read_some(line, *text, a, n)) {
            line.cancel(*text);
            CHECK(is_beginning(a.tokens, want.tokens), note);
            ++sum.n_cancelled;
            continue;
        }
        check_same(a, want, note);
        CHECK_EQ(a.stats.n_predicted, int32_t(a.tokens.size()), note);
        sum.n_accepted += a.stats.n_accepted;
    }
}

template <typename Lane, typename Host> void run_clients(const weather & w, int32_t n_texts, total & sum) {
    dice            d(w.seed);
    const language  lang{.seed = w.seed, .p_end = 0.002};
    const int32_t   n_places  = d.between(1, 8);
    const int32_t   n_clients = d.between(1, 3);
    const behaviour target{.lang = lang, .n_branch = 16, .n_spare = d.chance(0.5) ? 64 : 2000, .pass_us = 60};
    behaviour       draft             = target;
    draft.second                      = 0.5;
    draft.agree                       = 0.85;
    draft.accent                      = w.seed;
    draft.pass_us                     = 20;
    constexpr bool           at_draft = std::is_same_v<Host, draft_host>;
    scripted_model           model(at_draft ? draft : target);
    Host                     host(model, n_places);
    places                   free(n_places);
    std::deque<client<Lane>> clients;
    std::vector<std::thread> readers;
    for (int32_t c = 0; c < n_clients; ++c) {
        weather own         = w;
        own.seed            = w.seed * 10 + uint64_t(c);
        const int32_t  n    = d.between(1, 4);
        client<Lane> & mine = clients.emplace_back(target, draft, n, host, free, own);
        for (int32_t i = 0; i < n + 1; ++i) { // one of them waits
            const uint64_t seed = own.seed * 10 + uint64_t(i);
            readers.emplace_back(
                [&, n_ctx = target.n_ctx, seed] { read_texts(mine.line, lang, n_ctx, n_texts, seed, sum); });
        }
    }
    for (std::thread & t : readers) {
        t.join();
    }
    for (const auto & c : clients) {
        for (const auto & lane : c.lanes) {
            sum.n_cuts += lane.n_cuts();
        }
    }
}

ask ask_for(token_id first, int32_t n_predict, run_mode mode) {
    return ask{.prompt = {first, 5}, .n_predict = n_predict}.as(mode, 4);
}

// Two clients at one host: all lanes of the first hang in mid-text, and the second notices nothing.
template <typename Lane, typename Host> void one_hangs() {
    const language lang{.seed = 8};
    // Slow enough for guesses to come in time: a host does not wait for one client while it has others.
    const behaviour target{.lang = lang, .n_ctx = 2048, .n_branch = 16, .n_spare = 4000, .pass_us = 4000};
    behaviour       draft   = target;
    draft.agree             = 0.9;
    draft.pass_us           = 20;
    constexpr bool at_draft = std::is_same_v<Host, draft_host>;
    scripted_model model(at_draft ? draft : target);
    Host           host(model, 4);
    places         free(4);
    client<Lane>   bad(target, draft, 2, host, free, {.seed = 1});
    client<Lane>   good(target, draft, 2, host, free, {.seed = 2});

    const ask                               endless = ask_for(3, -1, run_mode::async);
    std::vector<std::shared_ptr<open_text>> hung;
    for (int32_t i = 0; i < 2; ++i) {
        hung.push_back(bad.line.begin(endless.make()));
        answer a;
        read_some(bad.line, *hung.back(), a, 20);
    }
    for (auto & lane : bad.lanes) {
        lane.hang();
    }
    int32_t n_accepted = 0;
    for (int32_t i = 0; i < 4; ++i) {
        const ask  q    = ask_for(1 + i, 100, run_mode::async);
        const auto text = good.line.begin(q.make());
        answer     a;
        read_some(good.line, *text, a, size_t(-1));
        check_same(a, reference(lang, target.n_ctx, q), std::to_string(i));
        n_accepted += a.stats.n_accepted;
    }
    CHECK(n_accepted > 5, std::to_string(n_accepted)); // the host is used; how often hangs on the machine
}

} // namespace

TEST(several_clients_share_a_draft) {
    total sum;
    for (uint64_t seed = 1; seed <= 6; ++seed) {
        run_clients<draft_lane, draft_host>({.seed = seed}, 5, sum);
    }
    CHECK(sum.n_accepted > 100, std::to_string(sum.n_accepted));
    CHECK(sum.n_cancelled > 0);
}

TEST(several_clients_share_a_target) {
    total sum;
    for (uint64_t seed = 1; seed <= 6; ++seed) {
        run_clients<verify_lane, verify_host>({.seed = seed}, 5, sum);
    }
    CHECK(sum.n_accepted > 100, std::to_string(sum.n_accepted));
    CHECK(sum.n_cancelled > 0);
}

TEST(drafts_of_several_clients_come_and_go) {
    total sum;
    for (uint64_t seed = 11; seed <= 18; ++seed) {
        run_clients<draft_lane, draft_host>(
            {.p_cut = 0.02, .p_hang = 0.02, .delay_us = 200, .away_us = 4000, .seed = seed}, 4, sum);
    }
    CHECK(sum.n_cuts > 20, std::to_string(sum.n_cuts));
    CHECK(sum.n_accepted > 20, std::to_string(sum.n_accepted));
}

TEST(targets_of_several_clients_come_and_go) {
    total sum;
    for (uint64_t seed = 11; seed <= 18; ++seed) {
        run_clients<verify_lane, verify_host>(
            {.p_cut = 0.02, .p_hang = 0.02, .delay_us = 200, .away_us = 4000, .seed = seed}, 4, sum);
    }
    CHECK(sum.n_cuts > 20, std::to_string(sum.n_cuts));
    CHECK(sum.n_accepted > 20, std::to_string(sum.n_accepted));
}

TEST(a_client_that_hangs_stalls_nobody_at_a_draft_host) {
    one_hangs<draft_lane, draft_host>();
}

TEST(a_client_that_hangs_stalls_nobody_at_a_verify_host) {
    one_hangs<verify_lane, verify_host>();
}

TEST(a_target_that_takes_no_nodes_loses_its_text_and_nobody_elses) {
    const behaviour b{.n_ctx = 20000, .n_branch = 16, .n_spare = 4000};
    scripted_model  model(b);
    draft_host      host(model, 2);
    text_params text{.id = request_node(1), .prompt = {3, 1, 2}, .stop = {}, .sampling = {.temp = 0.0f}, .plan = {}};
    host.begin(0, text);
    host.begin(1, text);
    // Each makes a node that names the token, even of a draft that is held.
    const std::vector<verdict_msg> many(64,
                                        {.what = verdict_msg::kind::verdict, .token = 39, .n_ahead = 8, .n_branch = 4});
    const int64_t                  until = now_us() + patience_us;
    for (int32_t n_given = 0; n_given < 300;) {
        REQUIRE(now_us() < until, "the draft takes verdicts");
        try {
            host.give(0, many);
            ++n_given;
        } catch (const error & e) {
            CHECK(e.kind() == error_kind::busy); // too far behind for the moment
        }
        std::vector<node_msg> nodes;
        host.take(1, nodes, now_us() + 100); // sorts for both
    }
    const auto refused = [&] {
        std::vector<node_msg> nodes;
        try {
            host.take(0, nodes, now_us());
        } catch (const error & e) {
            return e.kind() == error_kind::busy;
        }
        return false;
    };
    CHECK(refused());
    REQUIRE(host.end(0, now_us() + patience_us), "the host lets go");
    // The other one has its draft.
    host.give(1, std::vector<verdict_msg>{many.front()});
    std::vector<node_msg> nodes;
    while (nodes.size() < 3) {
        REQUIRE(host.take(1, nodes, now_us() + patience_us), "it drafts");
    }
}

TEST(a_draft_that_was_lost_for_a_while_reads_only_what_is_new) {
    struct counting : scripted_model {
        using scripted_model::scripted_model;
        decode_status decode(std::span<const row> rows, const std::atomic<bool> & stop) override {
            n_rows += rows.size();
            return scripted_model::decode(rows, stop);
        }
        std::atomic<size_t> n_rows{0};
    } draft(behaviour{});
    draft_host  host(draft, 1);
    text_params text = *ask{.n_predict = 60}.make();
    text.prompt.assign(400, 3);
    size_t before = 0;
    for (uint64_t part = 1; part <= 3; ++part) {
        text.id = request_node(part);
        host.begin(0, text);
        std::vector<node_msg> nodes; // the first one names the root
        while (nodes.size() < 2) {
            REQUIRE(host.take(0, nodes, now_us() + patience_us), "it drafts");
        }
        REQUIRE(host.end(0, now_us() + patience_us), "the link is lost");
        CHECK(part == 1 ? draft.n_rows >= 400 : draft.n_rows < before + 100);
        before = draft.n_rows;
        text.prompt.push_back(nodes[1].token); // committed while it was away
    }
}
