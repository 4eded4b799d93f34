// The power that a draft's own estimates need: what choices say of it, and what a draft does with it.
#include <algorithm>
#include <cmath>
#include <limits>
#include <thread>

#include "check.h"
#include "draft/draft_worker.h"
#include "plan/guess_record.h"
#include "random.h"
#include "scripted_head.h"
#include "scripted_model.h"
#include "tree/sharpness.h"

using namespace duo;
using namespace duo_test;

namespace {

// Siblings with random chances, which leave something beside them.
std::vector<double> any_chances(dice & d) {
    std::vector<double> p(size_t(d.between(1, 8)));
    double              sum = 0.01 * d.between(1, 60);
    for (double & x : p) {
        x = std::exp(-0.01 * d.between(0, 500));
        sum += x;
    }
    for (double & x : p) {
        x /= sum;
    }
    std::sort(p.rbegin(), p.rend());
    return p;
}

std::vector<float> logs(const std::vector<double> & p) {
    std::vector<float> out;
    for (const double x : p) {
        out.push_back(float(std::log(x)));
    }
    return out;
}

// The target's choice, where what the draft says is right to that power. -1: none of the siblings.
int32_t choice(dice & d, const std::vector<double> & said, double power) {
    double rest = 1.0;
    double sum  = 0.0;
    for (const double x : said) {
        rest -= x;
        sum += std::pow(x, power);
    }
    sum += std::pow(rest, power);
    double u = 1e-6 * d.below(1000000) * sum;
    for (size_t i = 0; i < said.size(); ++i) {
        u -= std::pow(said[i], power);
        if (u < 0.0) {
            return int32_t(i);
        }
    }
    return -1;
}

double total(const std::vector<float> & logp) {
    double sum = 0.0;
    for (const float x : logp) {
        sum += std::exp(double(x));
    }
    return sum;
}

} // namespace

TEST(the_power_is_found) {
    for (const double power : {0.5, 1.0, 1.7, 3.0}) {
        dice      d(uint64_t(10.0 * power));
        sharpness s;
        double    mean = 0.0;
        CHECK_EQ(s.order(), 0); // to begin with the draft is believed
        for (int i = 0; i < 5000; ++i) {
            const auto said = any_chances(d);
            s.on_choice(logs(said), choice(d, said, power));
            mean += i < 1000 ? 0.0 : std::log(s.power()) / 4000;
        }
        CHECK(std::abs(mean - std::log(power)) < 0.1, std::to_string(power) + ": " + std::to_string(std::exp(mean)));
        CHECK(std::abs(std::log(sharpness::power_of(s.order())) - std::log(s.power())) < 1e-3);
    }
}

// A text of a hundred tokens has told most of it.
TEST(the_power_is_found_soon) {
    double after = 0.0;
    for (uint64_t seed = 1; seed <= 50; ++seed) {
        dice      d(seed);
        sharpness s;
        for (int i = 0; i < 100; ++i) {
            const auto said = any_chances(d);
            s.on_choice(logs(said), choice(d, said, 2.0));
        }
        after += std::log(s.power()) / 50;
    }
    CHECK(after > 0.6 * std::log(2.0) && after < 1.1 * std::log(2.0), std::to_string(after));
}

TEST(estimates_are_chances) {
    dice d(5);
    for (int i = 0; i < 2000; ++i) {
        const auto         said = logs(any_chances(d));
        std::vector<float> out(said.size());
        sharpness::apply(1.0, said, out);
        for (size_t k = 0; k < said.size(); ++k) {
            CHECK(std::abs(out[k] - said[k]) < 0.01f, "to the power of 1 nothing changes");
        }
        for (const double power : {0.25, 0.6, 1.5, 4.0}) {
            sharpness::apply(power, said, out);
            CHECK(total(out) < 1.0 + 1e-6 && std::is_sorted(out.rbegin(), out.rend()));
        }
    }
}

TEST(impossible_numbers_do_no_harm) {
    sharpness   s;
    dice        d(9);
    const float odd[] = {-1000.0f, -69.0f, -20.0f, -1e-9f, 0.0f, 0.001f};
    for (int i = 0; i < 5000; ++i) {
        std::vector<float> said(size_t(d.between(0, 70)));
        for (float & x : said) {
            x = odd[d.below(6)];
        }
        s.on_choice(said, d.between(-1, int32_t(said.size()) - 1));
        CHECK(std::isfinite(s.power()) && s.power() >= 0.249 && s.power() <= 4.001, std::to_string(s.power()));
        CHECK(std::abs(s.order()) <= sharpness::most_order);
        std::vector<float> out(said.size());
        sharpness::apply(s.power(), said, out);
        CHECK(std::all_of(out.begin(), out.end(), [](float x) { return std::isfinite(x) && x < 0.01f; }));
    }
    for (const double power : {0.0, 1e-300, 1.0, 1e9}) {
        for (const double weight : {0.0, 1e12}) {
            const sharpness r = sharpness::restored(power, weight);
            CHECK(r.power() > 0.249 && r.power() < 4.001 && r.weight() < 1000.0);
        }
    }
}

// A later block did not propose it again: the target may choose it nevertheless, like any other token.
TEST(a_guess_that_was_dropped_is_a_part_of_what_is_left) {
    const float nan    = std::numeric_limits<float>::quiet_NaN();
    const float said[] = {-0.5f, -69.0f, -2.0f, nan};
    const float none[] = {-69.0f, -69.0f};
    sharpness   named, other, unsure, idle;
    for (int i = 0; i < 100; ++i) {
        named.on_choice(said, 1);
        other.on_choice(said, -1);
        unsure.on_choice(said, 3);
        idle.on_choice(none, i % 3 - 1);
    }
    CHECK(named.power() < 1.0);
    CHECK_EQ(named.power(), other.power());
    CHECK_EQ(unsure.power(), other.power());
    CHECK_EQ(idle.power(), 1.0, "there was no guess");
    for (const double power : {0.25, 1.0, 4.0}) {
        float out[3];
        sharpness::apply(power, std::span(said).first(3), out);
        CHECK(out[1] < -60.0f && out[0] > out[2] && out[2] > -60.0f, std::to_string(out[1]));
    }
}

namespace {

// What a draft tells below one root, when it was told that power. head: a head of blocks.
template <typename Model> std::vector<node_msg> told(const behaviour & b, int16_t order, size_t n) {
    wires w;
    w.features = std::is_same_v<Model, scripted_head> ? std::make_unique<feature_ring>(n_text_state, 64) : nullptr;
    Model        model(b);
    draft_worker worker(model, w);
    request      req;
    req.prompt   = {3, 1, 2, 4, 5};
    req.id       = request_node(1);
    req.sampling = {.temp = 0.0f};
    std::thread thread([&] { worker.run(); });
    verdict_msg v{.what = verdict_msg::kind::begin, .n_ahead = 12, .n_branch = 2, .req = &req};
    v.branch_price = 30000; // one node in a step
    v.sharpness    = order;
    w.verdicts.push(v);
    if (w.features != nullptr) {
        for (size_t p = 0; p + 1 < req.prompt.size(); ++p) {
            const auto before = std::span<const token_id>(req.prompt).first(p + 1);
            write_state(w.features->add(before.back()), before.size(), hash_of(before));
        }
        w.verdicts.push({.what = verdict_msg::kind::features, .n_rows = int32_t(req.prompt.size()) - 1});
        v.what = verdict_msg::kind::orders;
        w.verdicts.push(v);
    }
    std::vector<node_msg> out;
    while (out.size() < n) {
        node_msg msg;
        if (w.nodes.try_pop(msg) && msg.what == node_msg::kind::node && msg.parent != req.id) {
            out.push_back(msg);
        }
        std::this_thread::yield();
    }
    w.verdicts.close();
    thread.join();
    return out;
}

int32_t depth(const std::vector<node_msg> & all) {
    token_tree tree;
    tree.reset(all.front().parent, 0);
    int32_t deepest = 0;
    for (const node_msg & m : all) {
        deepest = std::max(deepest, tree.at(tree.insert(m.id, m.parent, m.token, m.logp)).depth);
    }
    return deepest;
}

} // namespace

// The surer a draft is told to be, the deeper its tree is at first, and the narrower. What it says stays the same.
template <typename Model> void check_shapes(const behaviour & b, size_t n) {
    const auto flat  = told<Model>(b, -1200, n);
    const auto as_is = told<Model>(b, 0, n);
    const auto steep = told<Model>(b, 1200, n);
    CHECK(depth(flat) < depth(as_is), std::to_string(depth(flat)) + " " + std::to_string(depth(as_is)));
    CHECK(depth(as_is) < depth(steep), std::to_string(depth(as_is)) + " " + std::to_string(depth(steep)));
    for (size_t i = 0; i < 5; ++i) {
        CHECK_EQ(flat[i].token, steep[i].token, "the children of the root");
        CHECK_EQ(flat[i].logp, as_is[i].logp);
        CHECK_EQ(flat[i].logp, steep[i].logp);
    }
}

TEST(a_draft_that_is_surer_looks_farther) {
    for (uint64_t seed = 1; seed < 6; ++seed) {
        check_shapes<scripted_model>({.lang = {.seed = seed}, .n_branch = 32}, 45);
    }
}

TEST(a_head_of_blocks_that_is_surer_looks_farther) {
    for (uint64_t seed = 1; seed < 6; ++seed) {
        check_shapes<scripted_head>({.lang = {.seed = seed}, .n_levels = 8, .n_batch = 16}, 45);
    }
}
