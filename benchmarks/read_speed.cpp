// How fast threads read memory, each one its own part from start to end. It limits a pass that reads each weight once.
//
//     g++ -std=c++20 -O3 -march=native -pthread read_speed.cpp -o read_speed && ./read_speed BYTES PASSES CORE...
//
// Prints bytes per second, best and median of the passes, on one line.
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <pthread.h>
#include <thread>
#include <vector>

namespace {

using steady = std::chrono::steady_clock;

void pin(int core) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

uint64_t sum(const uint64_t * p, size_t n) {
    uint64_t total = 0;
    for (size_t i = 0; i < n; ++i) {
        total += p[i];
    }
    return total;
}

} // namespace

int main(int argc, char ** argv) {
    if (argc < 4) {
        std::fprintf(stderr, "usage: %s BYTES PASSES CORE...\n", argv[0]);
        return 2;
    }
    const int    n_threads = argc - 3;
    const int    n_passes  = std::max(1, std::atoi(argv[2]));
    const size_t n_part    = std::strtoull(argv[1], nullptr, 10) / size_t(n_threads) / 4096 * 512; // of 8 bytes
    const size_t n_bytes   = n_part * 8 * size_t(n_threads);
    void *       memory    = mmap(nullptr, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (n_part == 0 || memory == MAP_FAILED) {
        std::fprintf(stderr, "cannot map %s bytes\n", argv[1]);
        return 1;
    }
    madvise(memory, n_bytes, MADV_HUGEPAGE); // like the weights of duo's kernels; otherwise it is a little slower

    std::vector<double>   seconds;
    std::atomic<uint64_t> seen{0};
    std::barrier          together(n_threads);
    auto                  work = [&](int i) {
        pin(std::atoi(argv[3 + i]));
        uint64_t * part = static_cast<uint64_t *>(memory) + size_t(i) * n_part;
        for (size_t k = 0; k < n_part; ++k) {
            part[k] = k * 0x9e3779b97f4a7c15u;
        }
        for (int pass = 0; pass < n_passes; ++pass) {
            together.arrive_and_wait();
            const auto t0 = steady::now();
            seen += sum(part, n_part);
            together.arrive_and_wait();
            if (i == 0) {
                seconds.push_back(std::chrono::duration<double>(steady::now() - t0).count());
            }
        }
    };
    std::vector<std::thread> threads;
    for (int i = 0; i < n_threads; ++i) {
        threads.emplace_back(work, i);
    }
    for (std::thread & t : threads) {
        t.join();
    }
    std::sort(seconds.begin(), seconds.end());
    const double bytes = double(n_bytes);
    std::printf("%.0f %.0f\n", bytes / seconds.front(), bytes / seconds[seconds.size() / 2]);
    std::fprintf(stderr, "%llx\n", static_cast<unsigned long long>(seen.load())); // so that no read is optimised away
    return 0;
}
