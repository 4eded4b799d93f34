// Clients with several texts at one host: a thread carries the messages of each text, and delays, cuts or hangs.
#pragma once

#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "pair.h"
#include "remote/draft_host.h"
#include "remote/target_link.h"
#include "remote/verify_host.h"

namespace duo_test {

struct weather {
    double   p_cut    = 0.0; // chance that a link is lost, in each round of its carrier
    double   p_hang   = 0.0; // chance that the carrier does nothing for a while
    int32_t  delay_us = 0;   // a round takes up to so long
    int32_t  away_us  = 0;   // it stays away, or hangs, up to so long
    uint64_t seed     = 1;
};

void sleep_us(uint64_t us);

// Which places of a host are free.
class places {
  public:
    explicit places(int32_t n) : free_(size_t(n), true) {}

    // -1: none is free.
    int32_t take(dice & d);
    void    give_back(int32_t place);

  private:
    std::mutex        mutex_;
    std::vector<bool> free_;
};

// Carries the texts of one link to a draft host.
class draft_lane {
  public:
    draft_lane(std::shared_ptr<draft_lines> lines, int32_t slot, draft_host & host, places & free)
        : link_(std::move(lines), slot), host_(host), free_(free) {}

    void connect() { link_.ready(); }
    void cut();
    void stop() {}
    bool round(dice & d);

  private:
    void end();

    draft_link   link_;
    draft_host & host_;
    places &     free_;
    int32_t      place_ = -1;
};

// The same to a verify host.
class verify_lane {
  public:
    verify_lane(std::shared_ptr<target_lines> lines, int32_t slot, verify_host & host, places & free)
        : link_(std::move(lines), slot), host_(host), free_(free) {}

    void connect() {}
    void cut() { end(); }
    void stop() { link_.stopped(); }
    bool round(dice & d);

  private:
    bool begin(const text_params & text, dice & d);
    void end();

    target_link   link_;
    verify_host & host_;
    places &      free_;
    int32_t       place_ = -1;
};

// A lane and its thread.
template <typename Lane> class carrier {
  public:
    carrier(std::unique_ptr<Lane> lane, const weather & w) : lane_(std::move(lane)), thread_([this, w] { run(w); }) {}
    ~carrier() {
        stop_ = true;
        thread_.join();
    }

    // From now on it carries nothing, and its place stays taken.
    void hang() { hangs_ = true; }

    [[nodiscard]] int32_t n_cuts() const { return n_cuts_; }

  private:
    void run(const weather & w) {
        dice d(w.seed);
        while (!stop_) {
            lane_->connect();
            for (bool up = true; up && !stop_;) {
                if (hangs_) {
                    sleep_us(500);
                    continue;
                }
                up = lane_->round(d) && !d.chance(w.p_cut);
                sleep_us(w.delay_us == 0 ? 0 : d.below(uint32_t(w.delay_us)));
                if (d.chance(w.p_hang)) {
                    sleep_us(d.below(uint32_t(w.away_us)));
                }
            }
            lane_->cut();
            if (stop_) {
                lane_->stop();
            }
            n_cuts_ += stop_ ? 0 : 1;
            sleep_us(w.away_us == 0 ? 0 : d.below(uint32_t(w.away_us)));
        }
    }

    std::unique_ptr<Lane> lane_;
    std::atomic<bool>     stop_{false};
    std::atomic<bool>     hangs_{false};
    std::atomic<int32_t>  n_cuts_{0};
    std::thread           thread_;
};

} // namespace duo_test
