#include "log_style.h"

#include <array>
#include <cstdio>

#include "base/utf8.h"

namespace duo {

namespace {

constexpr std::array names = {"none", "debug", "info", "warn", "error"};

std::string stamp(int64_t us) {
    std::array<char, 48> text{};
    std::snprintf(text.data(), text.size(), "%lld.%02lld.%03lld.%03lld ", (long long)(us / 60000000),
                  (long long)(us / 1000000 % 60), (long long)(us / 1000 % 1000), (long long)(us % 1000));
    return text.data();
}

std::string json_quoted(std::string_view text) {
    std::string out;
    for (const char c : utf8_valid(std::string(text))) {
        if (uint8_t(c) < 0x20) {
            std::array<char, 8> escape{};
            std::snprintf(escape.data(), escape.size(), "\\u%04x", unsigned(uint8_t(c)));
            out += escape.data();
        } else {
            out += c == '"' || c == '\\' ? std::string{'\\', c} : std::string(1, c);
        }
    }
    return '"' + out + '"';
}

} // namespace

std::string log_styler::styled(log_level level, std::string_view text, int64_t time_us) {
    const std::string_view line = text.substr(0, text.find_last_not_of('\n') + 1);
    if (style_.jsonl) {
        return line.empty() ? ""
                            : "{\"type\":\"log\",\"time\":" + std::to_string(time_us) + ",\"level\":\"" +
                                  names[size_t(level)] + "\",\"msg\":" + json_quoted(line) + "}\n";
    }
    std::string out;
    if (at_begin_ && !line.empty() && style_.prefix && level != log_level::none) {
        out = (style_.timestamps ? stamp(time_us) : "") + std::string{"-DIWE"[size_t(level)], ' '};
    }
    at_begin_ = text.empty() ? at_begin_ : text.back() == '\n';
    return out.append(text);
}

} // namespace duo
