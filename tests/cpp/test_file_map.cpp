// Files in memory, and the sum that finds damage in them.
#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/checksum.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/file_map.h"
#include "base/huge_page.h"
#include "base/read_ahead.h"
#include "base/watched_pages.h"
#include "check.h"

#if defined(__linux__)
#include <fcntl.h>
#include <unistd.h>
#endif

using namespace duo;

namespace {

struct made_file {
    std::string path =
        (std::filesystem::temp_directory_path() / ("duo-test-" + std::to_string(std::random_device{}()))).string();

    explicit made_file(const std::vector<uint8_t> & bytes) {
        std::ofstream f(path, std::ios::binary);
        f.write(reinterpret_cast<const char *>(bytes.data()), std::streamsize(bytes.size()));
    }
    ~made_file() { std::filesystem::remove(path); }
    made_file(const made_file &)             = delete;
    made_file & operator=(const made_file &) = delete;
};

std::vector<uint8_t> some_bytes(size_t n) {
    std::vector<uint8_t> bytes(n);
    for (size_t i = 0; i < n; ++i) {
        bytes[i] = uint8_t(i * 7 + i / 256);
    }
    return bytes;
}

} // namespace

TEST(any_changed_byte_changes_the_sum) {
    for (const size_t n : {1, 7, 8, 31, 32, 33, 100}) {
        std::vector<uint8_t> bytes = some_bytes(n);
        const uint64_t       good  = checksum(bytes.data(), n);
        CHECK_EQ(checksum(bytes.data(), n), good);
        for (size_t i = 0; i < n; ++i) {
            for (int bit = 0; bit < 8; ++bit) {
                bytes[i] ^= uint8_t(1 << bit);
                CHECK(checksum(bytes.data(), n) != good);
                bytes[i] ^= uint8_t(1 << bit);
            }
        }
    }
}

TEST(a_missing_byte_changes_the_sum_too) {
    const std::vector<uint8_t> zeros(100);
    for (size_t n = 1; n <= 100; ++n) {
        CHECK(checksum(zeros.data(), n) != checksum(zeros.data(), n - 1));
    }
}

TEST(a_mapped_file_has_its_bytes_whatever_its_size) {
    for (const size_t n : {size_t(1), size_t(4096), size_t(4097), size_t(5) << 20, (size_t(2) << 20) - 1}) {
        const std::vector<uint8_t> bytes = some_bytes(n);
        const made_file            f(bytes);
        for (const bool sequential : {false, true}) {
            const file_map map(f.path, sequential);
            CHECK_EQ(map.size(), n);
            CHECK(std::equal(bytes.begin(), bytes.end(), map.data()));
            map.forget(0, n);
            CHECK(std::equal(bytes.begin(), bytes.end(), map.data())); // read again
        }
    }
}

TEST(what_cannot_be_mapped_is_an_error) {
    const made_file empty({});
    for (const std::string & path : {empty.path, std::string("/no/such/file")}) {
        bool thrown = false;
        try {
            const file_map map(path);
        } catch (const error & e) {
            thrown = std::string(e.what()).find(path) != std::string::npos;
        }
        CHECK(thrown);
    }
}

#if defined(DUO_HAS_MMAP)

// The system lets nobody read pages behind the end of a file, as it does with pages that a disk cannot give.
TEST(pages_that_cannot_be_read_are_zeros) {
    const size_t               n_page = page_size();
    const std::vector<uint8_t> bytes  = some_bytes(64 * n_page);
    const made_file            f(bytes), g(bytes);
    const file_map             cut(f.path), good(g.path), again(f.path);
    CHECK(std::equal(bytes.begin(), bytes.end(), cut.data()));
    std::filesystem::resize_file(f.path, 2 * n_page);
    CHECK(!cut.lost());
    std::vector<std::thread> readers;
    std::atomic<uint64_t>    sum{0};
    for (int i = 0; i < 4; ++i) {
        readers.emplace_back([&, i] {
            for (int page = 63 - i; page > 2; page -= 4) {
                sum += cut.data()[size_t(page) * n_page + 5];
            }
        });
    }
    for (std::thread & r : readers) {
        r.join();
    }
    CHECK_EQ(sum.load(), uint64_t(0));
    CHECK(cut.lost());
    CHECK(std::equal(bytes.begin(), bytes.begin() + std::ptrdiff_t(2 * n_page), cut.data())); // these are still there
    CHECK(std::equal(bytes.begin(), bytes.end(), good.data()));
    CHECK(!good.lost());
    CHECK(!again.lost()); // nobody has read it yet
}

TEST(addresses_are_watched_while_the_map_lives) {
    const made_file f(some_bytes(100));
    const uint8_t * data = nullptr;
    {
        const file_map map(f.path);
        data = map.data();
        CHECK(watched_pages::watches(data) && watched_pages::watches(data + 99));
    }
    CHECK(!watched_pages::watches(data));
}

#endif

#if defined(__linux__)

namespace {

void drop_from_memory(const std::string & path) {
    const int fd = open(path.c_str(), O_RDONLY);
    CHECK_EQ(fsync(fd), 0);
    CHECK_EQ(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
    close(fd);
}

} // namespace

TEST(all_of_what_is_wanted_comes_into_memory) {
    const made_file f(some_bytes(size_t(12) << 20)); // more than systems read ahead
    drop_from_memory(f.path);
    const file_map map(f.path);
    const auto     n_missing = [&map] {
        size_t n = 0;
        for (size_t at = 0; at < map.size(); at += page_size()) {
            n += map.in_memory(at) ? 0 : 1;
        }
        return n;
    };
    if (2 * n_missing() < map.size() / page_size()) {
        return; // this file system keeps its files there
    }
    map.want(100, map.size() - 200);
    const int64_t t_end = now_us() + 60'000'000; // a page that is not read would stay away
    while (n_missing() > 0 && now_us() < t_end) {
        std::this_thread::yield();
    }
    CHECK_EQ(n_missing(), 0u);
    map.want(0, map.size()); // nothing is missing
}

TEST(a_file_that_is_on_the_disk_comes_into_memory) {
    const std::vector<uint8_t> bytes = some_bytes(size_t(8) << 20);
    const made_file            f(bytes);
    drop_from_memory(f.path);
    const auto   map  = std::make_shared<const file_map>(f.path);
    const size_t last = map->size() - 1;
    if (map->in_memory(last) || !map->fill(0, 1)) {
        return; // this file system keeps its files there, or the system is old
    }
    read_ahead reading({map});
    CHECK(reading.finished());
    CHECK(map->in_memory(last));
    CHECK(std::equal(bytes.begin(), bytes.end(), map->data()));
    std::filesystem::resize_file(f.path, 4096);
    CHECK(!map->fill(0, map->size()) && !map->lost()); // no signal
}

#endif
