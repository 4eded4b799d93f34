#include <chrono>
#include <cstring>

#include "check.h"

int main(int argc, char ** argv) {
    int n_run = 0;
    for (const check::test_case & test : check::all_tests()) {
        if (argc > 1 && std::strstr(test.name, argv[1]) == nullptr) {
            continue;
        }
        const int  before = check::n_failed.load();
        const auto t0     = std::chrono::steady_clock::now();
        try {
            test.body();
        } catch (const check::require_failed &) {
            // already counted
        } catch (const std::exception & e) {
            check::fail(test.name, 0, std::string("threw ") + e.what());
        }
        const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - t0);
        std::printf("%-6s %s (%lld ms)\n", check::n_failed.load() == before ? "ok" : "FAILED", test.name,
                    static_cast<long long>(ms.count()));
        std::fflush(stdout);
        ++n_run;
    }
    if (n_run == 0) {
        std::fprintf(stderr, "no test of that name\n");
        return 2;
    }
    return check::n_failed.load() == 0 ? 0 : 1;
}
