// A thread of which a test knows that it sleeps.
#pragma once

#include <atomic>
#include <chrono>
#include <fstream>
#include <string>
#include <thread>

#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace duo_test {

// A thread that does nothing but wait after begin(). On Linux it is known when it sleeps; elsewhere it has a moment.
class sleeper {
  public:
    void begin() {
#if defined(__linux__)
        id_.store(int(syscall(SYS_gettid)));
#else
        id_.store(1);
#endif
        id_.notify_all();
    }
    void wait_until_asleep() {
        id_.wait(0);
#if defined(__linux__)
        for (char state = '?'; state != 'S';) {
            std::string   line;
            std::ifstream stat("/proc/self/task/" + std::to_string(id_.load()) + "/stat");
            std::getline(stat, line); // "id (name) state ..."
            state = line.at(line.rfind(')') + 2);
            std::this_thread::yield();
        }
#else
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
#endif
    }

  private:
    std::atomic<int> id_{0};
};

} // namespace duo_test
