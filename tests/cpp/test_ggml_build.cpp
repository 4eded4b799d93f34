// Which builds of llama.cpp pass for the same: by commit, else by release.
#include <vector>

#include "check.h"
#include "cpu/ggml_build.h"

using namespace duo::cpu;

namespace {

const std::string version = "0.25.3";

} // namespace

TEST(commits_of_one_source_are_recognised) {
    const std::vector<std::string> same  = {"0c1e570", "0c1e570-dirty", "0c1e57098", "0c1e57098-dirty",
                                            "0c1e57098d1b2c3d4e5f60718293a4b5c6d7e8f9"};
    const std::vector<std::string> other = {"1c1e570", "0c1e571", "0c1e57099", "ffffffff-dirty"};
    for (const std::string & a : same) {
        for (const char * release : {"", "0.3.36", "0.3.37"}) { // no matter
            for (const std::string & b : same) {
                CHECK(same_source({a, version, "0.3.36"}, {b, version, release}), a + " " + b);
                CHECK(!same_source({a, version, "0.3.36"}, {b, "0.25.4", release}), a + " " + b);
            }
            for (const std::string & b : other) {
                const bool longer = b == "0c1e57099" && a.starts_with("0c1e570") && commit_digits(a).size() == 7;
                CHECK_EQ(same_source({a, version, "0.3.36"}, {b, version, release}), longer);
                CHECK_EQ(same_source({b, version, "0.3.36"}, {a, version, release}), longer);
            }
        }
    }
}

TEST(without_a_commit_the_release_decides) {
    const std::vector<std::string> unknown = {"", "unknown", "unknown-dirty", "0c1e57", "-dirty", "HEAD", "0C1E570"};
    const std::vector<std::string> known   = {"0c1e570", "0c1e570-dirty"};
    for (const std::string & a : unknown) {
        for (const auto & commits : {unknown, known}) {
            for (const std::string & b : commits) {
                const auto same = [&](const std::string & release_a, const std::string & release_b) {
                    const ggml_build x{a, version, release_a};
                    const ggml_build y{b, version, release_b};
                    CHECK_EQ(same_source(x, y), same_source(y, x));
                    return same_source(x, y);
                };
                CHECK(same("0.3.36", "0.3.36"));
                CHECK(!same("0.3.36", "0.3.35"));
                CHECK(!same("0.3.36", ""));
                CHECK(!same("", "0.3.36"));
                CHECK(!same("", "")); // two that know nothing
                CHECK(!same_source({a, version, "0.3.36"}, {b, "0.26.0", "0.3.36"}));
            }
        }
    }
}

TEST(a_build_is_described_by_what_is_known) {
    CHECK_EQ(description({"0c1e570-dirty", version, "0.3.36"}),
             "ggml 0.25.3, commit 0c1e570-dirty, of llama-cpp-python 0.3.36");
    CHECK_EQ(description({"", version, ""}), "ggml 0.25.3, commit unknown");
}
