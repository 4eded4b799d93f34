// A token_model without a model: a made-up language in which the next token is a function of the text so far.
//
// The text is read from the tokens that were really decoded into its cache, and every call is checked against the
// contract of token_model.h, so a worker that rolls back or counts positions wrongly is caught on the spot.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "check.h"
#include "core/token_model.h"
#include "error.h"
#include "random.h"

namespace duo_test {

using duo::candidate;
using duo::decode_status;
using duo::row;
using duo::sampling_params;
using duo::token_id;

// The language. Equal seeds speak the same; token 0 ends a text.
struct language {
    uint64_t seed    = 1;
    int32_t  n_vocab = 40;
    double   p_end   = 0.0;

    static constexpr int32_t n_choices = 5;

    // What may follow, most probable first.
    std::vector<candidate> after(std::span<const token_id> text, double agree = 1.0, uint64_t accent = 0) const {
        uint64_t h = hash64(seed ^ (text.size() << 20));
        for (size_t i = text.size() - std::min<size_t>(3, text.size()); i < text.size(); ++i) {
            h = hash64(h ^ uint64_t(text[i]));
        }
        // A draft agrees where a hash of the same text says so; elsewhere none of its tokens is the target's first.
        const int32_t          shift = dice(h ^ accent ^ 77).chance(agree) ? 0 : n_choices;
        std::vector<candidate> out(n_choices);
        float                  logp = -0.05f;
        for (int32_t i = 0; i < n_choices; ++i) {
            out[size_t(i)] = {.token = token_id(1 + (h + uint64_t(i + shift)) % uint64_t(n_vocab - 1)), .logp = logp};
            logp -= 0.2f + float(hash64(h + uint64_t(i)) % 1000) * 1e-3f;
        }
        if (dice(h ^ 99).chance(p_end)) {
            out[shift == 0 ? 0 : 1].token = 0;
        }
        return out;
    }

    // Filter, penalties, noise: all that depends on the text and its length, so that a wrong one shows.
    static void choose(std::vector<candidate> & all, const sampling_params & s, std::span<const token_id> text) {
        if (s.ignore_eos) {
            std::erase_if(all, [](const candidate & c) { return c.token == 0; });
        }
        std::vector<std::pair<float, candidate>> ranked;
        for (candidate c : all) {
            if (s.penalised()) {
                const auto n = std::min(text.size(), size_t(std::max(0, s.repeat_last_n)));
                c.logp -=
                    s.presence_penalty * float(std::count(text.end() - std::ptrdiff_t(n), text.end(), c.token) > 0);
            }
            ranked.emplace_back(s.greedy() ? c.logp : c.logp / s.temp + duo::gumbel_noise(s.seed, text.size(), c.token),
                                c);
        }
        std::stable_sort(ranked.begin(), ranked.end(),
                         [](const auto & a, const auto & b) { return a.first > b.first; });
        for (size_t i = 0; i < ranked.size(); ++i) {
            all[i] = ranked[i].second;
        }
    }

    // Letters for stop strings, and bytes that are not whole characters.
    static std::string piece(token_id token) {
        static const std::string bytes[] = {"a", "b", "ab", "\xe2", "\x82", "\xac", "\xf0\x9f", "c", "", " a"};
        return bytes[size_t(token) % 10];
    }
};

struct behaviour {
    language lang{};
    int32_t  n_ctx        = 512;
    int32_t  n_batch      = 64;
    double   agree        = 1.0;
    uint64_t accent       = 0; // which tokens a draft gets wrong
    size_t   dull_until   = 0; // all of them, in texts shorter than this
    int32_t  delay_us     = 0; // sleeps at random up to this in each decode()
    int32_t  pass_us      = 0; // and always this long
    uint64_t delay_seed   = 1;
    bool     can_rollback = true;
    bool     heeds_stop   = true;
    int64_t  throw_at     = -1; // this decode() throws, counted from 0, half of its rows in the cache
    int64_t  throw_choice = -1; // this candidates() throws
    int64_t  hang_at      = -1; // this decode() does not return before release(), or `stop` if it heeds that
};

class scripted_model : public duo::token_model {
  public:
    explicit scripted_model(const behaviour & b) : b_(b) {}

    int32_t n_ctx() const override { return b_.n_ctx; }
    int32_t n_batch() const override { return b_.n_batch; }
    int32_t n_branch() const override { return 1; }
    int32_t n_vocab() const override { return b_.lang.n_vocab; }
    bool    is_end(token_id token) const override { return token == 0; }

    std::string piece(token_id token) const override { return language::piece(token); }

    decode_status decode(std::span<const row> rows, const std::atomic<bool> & stop) override {
        const one_at_a_time guard(*this);
        const int64_t       n        = n_decoded.fetch_add(1);
        const size_t        n_before = cache_.size();
        REQUIRE(!rows.empty() && int32_t(rows.size()) <= b_.n_batch, "n_batch respected");
        rows_.assign(rows.begin(), rows.end());
        for (size_t i = 0; i < rows.size(); ++i) {
            REQUIRE_EQ(size_t(rows[i].pos), n_before + i,
                       "positions are contiguous, and what is cached was rolled back");
            REQUIRE(rows[i].pos < b_.n_ctx, "n_ctx respected");
            REQUIRE(rows[i].branch == 0);
            if (rows[i].token < 0 || rows[i].token >= b_.lang.n_vocab) {
                throw duo::error("token outside the vocabulary");
            }
        }
        if (b_.pass_us > 0) {
            std::this_thread::sleep_for(std::chrono::microseconds(b_.pass_us));
        }
        if (b_.delay_us > 0) {
            loiter(hash64(b_.delay_seed ^ uint64_t(n)), b_.delay_us);
        }
        if (n == b_.hang_at) {
            hanging_.store(true);
            hanging_.notify_all();
            while (!released_.load() && !(b_.heeds_stop && stop.load())) {
                std::this_thread::sleep_for(std::chrono::microseconds(200));
            }
        }
        if (stop.load() && b_.heeds_stop) {
            return decode_status::stopped;
        }
        const bool   broken = n == b_.throw_at;
        const size_t n_kept = broken ? rows.size() / 2 : rows.size();
        for (size_t i = 0; i < n_kept; ++i) {
            cache_.push_back(rows[i].token);
        }
        if (broken) {
            throw duo::error("decode " + std::to_string(n) + " fails");
        }
        return decode_status::ok;
    }

    int32_t candidates(int32_t i_row, const sampling_params & s, std::span<const token_id> text,
                       std::span<candidate> out) override {
        const one_at_a_time guard(*this);
        check_row(i_row);
        const auto n = size_t(rows_[size_t(i_row)].pos) + 1;
        REQUIRE_EQ(text.size(), n, "text up to the row");
        REQUIRE(std::equal(text.begin(), text.end(), cache_.begin()), "what is cached is the text");
        if (n_chosen_++ == b_.throw_choice) {
            throw duo::error("choice fails");
        }
        auto all = b_.lang.after(std::span(cache_).first(n), n < b_.dull_until ? 0.0 : b_.agree, b_.accent);
        language::choose(all, s, text);
        const size_t n_out = std::min(out.size(), all.size());
        std::copy_n(all.begin(), n_out, out.begin());
        return int32_t(n_out);
    }

    float logprobs(int32_t i_row, token_id token, std::span<candidate> out) override {
        const one_at_a_time guard(*this);
        check_row(i_row);
        const auto all = b_.lang.after(std::span(cache_).first(size_t(rows_[size_t(i_row)].pos) + 1));
        REQUIRE(out.size() <= all.size());
        std::copy_n(all.begin(), out.size(), out.begin());
        for (const candidate & c : all) {
            if (c.token == token) {
                return c.logp;
            }
        }
        return -100.0f;
    }

    bool rollback(int32_t branch, int32_t pos) override {
        const one_at_a_time guard(*this);
        REQUIRE(branch == 0 && pos >= 0);
        if (!b_.can_rollback && pos > 0 && size_t(pos) < cache_.size()) {
            return false;
        }
        cache_.resize(std::min(cache_.size(), size_t(pos)));
        return true;
    }

    void fork(int32_t /*from*/, int32_t /*to*/) override { REQUIRE(false, "one branch only"); }

    // For the test's own thread.
    void wait_until_hanging() { hanging_.wait(false); }
    void release() { released_.store(true); }
    bool hanging() const { return hanging_.load(); }

    std::atomic<int64_t> n_decoded{0};

  private:
    struct one_at_a_time {
        explicit one_at_a_time(scripted_model & m) : m_(m) {
            REQUIRE(!m_.in_use_.exchange(true), "one thread at a time");
        }
        ~one_at_a_time() { m_.in_use_.store(false); }
        scripted_model & m_;
    };

    void check_row(int32_t i_row) const {
        REQUIRE(i_row >= 0 && size_t(i_row) < rows_.size());
        REQUIRE(rows_[size_t(i_row)].output, "only output rows are asked");
        REQUIRE(size_t(rows_[size_t(i_row)].pos) < cache_.size());
    }

    const behaviour       b_;
    std::vector<token_id> cache_;
    std::vector<row>      rows_; // of the last decode
    int64_t               n_chosen_ = 0;
    std::atomic<bool>     in_use_{false};
    std::atomic<bool>     hanging_{false};
    std::atomic<bool>     released_{false};
};

} // namespace duo_test
