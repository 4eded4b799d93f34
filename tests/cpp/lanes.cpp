#include "lanes.h"

namespace duo_test {

void sleep_us(uint64_t us) {
    std::this_thread::sleep_for(std::chrono::microseconds(us));
}

int32_t places::take(dice & d) {
    const std::lock_guard locked(mutex_);
    const size_t          first = d.below(uint32_t(free_.size()));
    for (size_t i = 0; i < free_.size(); ++i) {
        if (const size_t at = (first + i) % free_.size(); free_[at]) {
            free_[at] = false;
            return int32_t(at);
        }
    }
    return -1;
}

void places::give_back(int32_t place) {
    const std::lock_guard locked(mutex_);
    free_[size_t(place)] = true;
}

void draft_lane::cut() {
    link_.lost();
    end();
}

bool draft_lane::round(dice & d) {
    if (place_ < 0) {
        const auto text = link_.wait_begin(now_us() + 200);
        if (!text.has_value()) {
            return true;
        }
        place_ = free_.take(d);
        if (place_ < 0) {
            return false; // all are taken
        }
        host_.begin(place_, *text);
        return true;
    }
    std::vector<verdict_msg> verdicts;
    std::vector<node_msg>    nodes;
    link_.take(verdicts, now_us() + 50);
    host_.give(place_, verdicts);
    host_.take(place_, nodes, now_us() + 50);
    link_.give(nodes);
    if (!verdicts.empty() && verdicts.back().what == verdict_msg::kind::end) {
        end();
    }
    return true;
}

void draft_lane::end() {
    if (place_ >= 0) {
        REQUIRE(host_.end(place_, now_us() + patience_us), "the host lets go");
        free_.give_back(place_);
        place_ = -1;
    }
}

bool verify_lane::round(dice & d) {
    if (!link_.running()) {
        const auto text = link_.wait_begin(now_us() + 200);
        return !text.has_value() || begin(*text, d);
    }
    if (link_.cancelled()) {
        end();
        link_.stopped();
        return true;
    }
    if (place_ < 0) {
        return begin(link_.restart(), d);
    }
    std::vector<verdict_msg> verdicts;
    std::vector<chunk_msg>   chunks;
    std::vector<node_msg>    nodes;
    link_.take(nodes, now_us() + 50);
    host_.give(place_, nodes);
    host_.take(place_, verdicts, chunks, now_us() + 50);
    const bool last = !chunks.empty() && chunks.back().what == chunk_msg::kind::end;
    if (last) {
        link_.add_stats(host_.current(place_)->req().stats);
        end(); // before the reader knows, who may begin another text
    }
    link_.give(verdicts, chunks);
    return true;
}

bool verify_lane::begin(const text_params & text, dice & d) {
    place_ = free_.take(d);
    if (place_ >= 0) {
        host_.begin(place_, text);
    }
    return place_ >= 0;
}

void verify_lane::end() {
    if (place_ >= 0) {
        host_.cancel(place_);
        CHECK(!host_.running(place_));
        free_.give_back(place_);
        place_ = -1;
    }
}

} // namespace duo_test
