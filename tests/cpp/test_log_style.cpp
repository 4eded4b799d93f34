// Log lines as llama.cpp's --log-prefix, --log-timestamps and --log-jsonl show them.
#include "check.h"
#include "llama/log_style.h"

using namespace duo;

namespace {

std::string styled(const log_style & style, log_level level, const char * text, int64_t us = 0) {
    log_styler s;
    s.set(style);
    return s.styled(level, text, us);
}

} // namespace

TEST(without_a_style_lines_stay_as_they_are) {
    CHECK_EQ(styled({}, log_level::warn, "a\nb\n"), std::string("a\nb\n"));
    CHECK_EQ(styled({.timestamps = true}, log_level::warn, "a\n"), std::string("a\n")); // only with a prefix
}

TEST(each_line_has_one_prefix_however_it_comes) {
    log_styler s;
    s.set({.prefix = true});
    CHECK_EQ(s.styled(log_level::info, "load", 0), std::string("I load"));
    CHECK_EQ(s.styled(log_level::info, "ing ...", 0), std::string("ing ..."));
    CHECK_EQ(s.styled(log_level::info, "\n", 0), std::string("\n"));
    CHECK_EQ(s.styled(log_level::error, "failed\n", 0), std::string("E failed\n"));
    CHECK_EQ(s.styled(log_level::none, "plain\n", 0), std::string("plain\n"));
    CHECK_EQ(s.styled(log_level::info, "", 0), std::string());
    CHECK_EQ(s.styled(log_level::debug, "x\n", 0), std::string("D x\n"));
}

TEST(the_time_is_that_since_the_log_began) {
    CHECK_EQ(styled({.prefix = true, .timestamps = true}, log_level::warn, "a\n", 61002003),
             std::string("1.01.002.003 W a\n"));
    CHECK_EQ(styled({.prefix = true, .timestamps = true}, log_level::info, "a\n", 7),
             std::string("0.00.000.007 I a\n"));
}

TEST(json_is_valid_whatever_the_line_holds) {
    const log_style style{.prefix = true, .timestamps = true, .jsonl = true};
    CHECK_EQ(styled(style, log_level::info, "a \"b\" \\ \t\n", 5),
             std::string(R"({"type":"log","time":5,"level":"info","msg":"a \"b\" \\ \u0009"})") + "\n");
    CHECK_EQ(styled(style, log_level::error, "\xff\n"),
             std::string("{\"type\":\"log\",\"time\":0,\"level\":\"error\",\"msg\":\"\xEF\xBF\xBD\"}\n"));
    CHECK_EQ(styled(style, log_level::info, "\n"), std::string());
}
