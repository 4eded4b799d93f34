// What explains a failure: the lines that its own thread has logged.
#include <string>
#include <thread>

#include "check.h"
#include "llama/log_lines.h"

using namespace duo;

TEST(a_thread_sees_its_own_error_lines_only) {
    clear_log_lines();
    keep_log_line(log_kind::error, "llama_decode: the target failed\n");
    std::string theirs;
    std::thread([&theirs] {
        clear_log_lines(); // a pass of the draft begins
        keep_log_line(log_kind::error, "llama_decode: the draft failed\n");
        theirs = joined_log_lines();
    }).join();
    CHECK_EQ(theirs, std::string("the draft failed"));
    CHECK_EQ(joined_log_lines(), std::string("the target failed"));
    clear_log_lines();
    CHECK_EQ(joined_log_lines(), std::string());
}

TEST(error_lines_become_one_sentence) {
    clear_log_lines();
    keep_log_line(log_kind::other, "llama_load: fine\n");
    keep_log_line(log_kind::continued, "....\n");
    keep_log_line(log_kind::error, "llama_model_load: error loading model: a tensor is missing.\n");
    keep_log_line(log_kind::continued, "in the file\n");
    keep_log_line(log_kind::error, "failed to load model\n");
    CHECK_EQ(joined_log_lines(), std::string("a tensor is missing; in the file"));
    keep_log_line(log_kind::error, std::string(2000, 'x').c_str());
    keep_log_line(log_kind::error, "one too many");
    CHECK(joined_log_lines().size() < 600);
    CHECK(joined_log_lines().find("many") == std::string::npos);
    clear_log_lines();
}
