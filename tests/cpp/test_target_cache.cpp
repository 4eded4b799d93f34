// What the target's cache keeps, and what goes when it is full. No threads, no draft, no planner.
#include "check.h"
#include "scripted_model.h"
#include "verify/target_cache.h"

using namespace duo;
using namespace duo_test;

namespace {

std::vector<token_id> tokens_from(token_id first, size_t n) {
    std::vector<token_id> out(n);
    for (size_t i = 0; i < n; ++i) {
        out[i] = token_id(1 + (size_t(first) + i * 7) % 30);
    }
    return out;
}

struct world {
    scripted_model                        model;
    target_cache                          cache;
    std::vector<std::unique_ptr<request>> requests;

    explicit world(behaviour b, size_t n_slots = 2, int64_t n_kept = kept_without_limit)
        : model(b), cache(model, n_slots, n_kept, false) {}

    // A text begins, its prompt is read, and it goes on.
    verify_slot & begin(std::vector<token_id> prompt, bool use_cache = true) {
        auto & r        = *requests.emplace_back(std::make_unique<request>());
        r.prompt        = std::move(prompt);
        r.id            = request_node(requests.size());
        r.use_cache     = use_cache;
        verify_slot & s = cache.choose_slot(r);
        s.text.begin(r);
        cache.touch(s);
        cache.keep_beginning(s);
        read(s);
        return s;
    }
    void read(verify_slot & s) {
        while (s.n_missing() > 0) {
            std::vector<row> rows;
            for (size_t i = s.cached.size(); i < s.text.tokens().size() && rows.size() < 32; ++i) {
                rows.push_back(
                    {.token = s.text.tokens()[i], .pos = int32_t(i), .branch = s.first_branch, .output = true});
            }
            CHECK(model.decode(rows, never_stop) == decode_status::ok);
            s.n_read = rows.size();
            cache.on_read(s);
        }
    }
    void end(verify_slot & s) {
        cache.forget_rejected(s);
        s.text.end();
    }
    [[nodiscard]] int32_t held(const verify_slot & s) const { return model.n_held(s.first_branch); }
};

} // namespace

TEST(a_text_that_goes_on_gets_the_place_of_its_beginning) {
    world         w(behaviour{});
    verify_slot & a = w.begin(tokens_from(3, 40));
    verify_slot & b = w.begin(tokens_from(11, 50));
    CHECK(&a != &b);
    w.end(a);
    w.end(b);
    auto longer = tokens_from(3, 60);
    CHECK_EQ(w.cache.nearest_slot(longer, {}).index, a.index);
    verify_slot & again = w.begin(longer);
    CHECK_EQ(again.index, a.index);
    CHECK_EQ(again.text.req().stats.n_prompt_cached, 40);
    CHECK_EQ(w.held(again), 60);
}

TEST(the_last_token_is_evaluated_again) {
    world         w(behaviour{});
    verify_slot & a = w.begin(tokens_from(3, 40));
    w.end(a);
    CHECK_EQ(w.begin(tokens_from(3, 40)).text.req().stats.n_prompt_cached, 39);
}

TEST(a_text_that_is_not_to_use_the_cache_takes_the_oldest_place_and_empties_it) {
    world         w(behaviour{});
    verify_slot & a = w.begin(tokens_from(3, 40));
    verify_slot & b = w.begin(tokens_from(11, 50));
    w.end(a);
    w.end(b);
    verify_slot & c = w.begin(tokens_from(11, 50), false);
    CHECK_EQ(c.index, a.index);
    CHECK_EQ(c.text.req().stats.n_prompt_cached, 0);
}

TEST(a_full_cache_gives_up_the_oldest_ended_text_and_no_text_that_is_written) {
    world         w(behaviour{.n_ctx = 200, .n_spare = 10}, 3);
    verify_slot & a = w.begin(tokens_from(3, 70));
    verify_slot & b = w.begin(tokens_from(11, 60));
    w.end(a);
    CHECK(w.cache.make_room(80));
    CHECK_EQ(w.held(a), 70); // it fits
    CHECK(w.cache.make_room(100));
    CHECK_EQ(w.held(a), 0);
    CHECK_EQ(a.cached.size(), 0u);
    CHECK(!w.cache.make_room(160)); // b is being written
    CHECK_EQ(w.held(b), 60);
    CHECK_EQ(w.cache.n_free(), 150u);
}

TEST(what_left_the_cache_comes_back_from_ram) {
    world         w(behaviour{.n_ctx = 200, .n_spare = 10}, 2);
    verify_slot & a = w.begin(tokens_from(3, 90));
    w.end(a);
    CHECK(w.cache.make_room(200)); // saves it
    CHECK_EQ(w.cache.kept().size(), 1u);
    verify_slot & again = w.begin(tokens_from(3, 100));
    CHECK_EQ(again.text.req().stats.n_prompt_cached, 90);
    CHECK_EQ(again.text.req().stats.n_prompt_returned, 90);
    CHECK_EQ(w.held(again), 100);
}

TEST(nothing_is_kept_in_ram_without_room_for_it) {
    world         w(behaviour{.n_ctx = 200, .n_spare = 10}, 2, 0);
    verify_slot & a = w.begin(tokens_from(3, 90));
    w.end(a);
    CHECK(w.cache.make_room(200));
    CHECK_EQ(w.cache.kept().size(), 0u);
    CHECK_EQ(w.begin(tokens_from(3, 100)).text.req().stats.n_prompt_cached, 0);
}

TEST(a_text_that_is_larger_than_all_the_room_is_not_copied) {
    for (const bool fits : {false, true}) {
        world         w(behaviour{.n_ctx = 200, .n_spare = 10}, 2, fits ? 1000 : 360); // 90 tokens have 360 bytes
        verify_slot & a = w.begin(tokens_from(3, 90));
        w.end(a);
        CHECK(w.cache.make_room(200));
        CHECK_EQ(w.model.n_saved.load(), fits ? 1 : 0);
        CHECK_EQ(w.cache.kept().size(), fits ? 1u : 0u);
    }
}

TEST(a_slot_goes_back_in_all_of_its_branches) {
    world         w(behaviour{});
    verify_slot & a = w.begin(tokens_from(3, 40));
    w.model.fork(a.first_branch, a.first_branch + 1, 40);
    w.cache.go_back(a, 30);
    CHECK_EQ(a.cached.size(), 30u);
    CHECK_EQ(w.held(a), 30);
    CHECK_EQ(w.model.n_held(a.first_branch + 1), 0);
}

TEST(a_cache_that_cannot_go_back_far_enough_says_so) {
    world         w(behaviour{.undo = undo_kind::copy, .n_undo = 8}, 1);
    verify_slot & a = w.begin(tokens_from(3, 40));
    std::string   said;
    try {
        w.cache.trim(a, 20, 4);
    } catch (const error & e) {
        said = e.what();
    }
    CHECK(said.find("cannot be rolled back") != std::string::npos, said);
}
