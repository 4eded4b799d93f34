#include "chat_template.h"

#include <algorithm>
#include <cstdint>

#include <llama.h>

#include "base/error.h"

namespace duo {

std::vector<std::string> chat_template_names() {
    std::vector<const char *> names(size_t(std::max(0, llama_chat_builtin_templates(nullptr, 0))));
    llama_chat_builtin_templates(names.data(), names.size());
    return {names.begin(), names.end()};
}

std::string apply_chat_template(const std::string & name, const std::vector<chat_message> & messages,
                                bool add_assistant) {
    std::vector<llama_chat_message> chat;
    size_t                          n_bytes = 64;
    for (const auto & [role, content] : messages) {
        chat.push_back({role.c_str(), content.c_str()});
        n_bytes += 2 * (role.size() + content.size()) + 64;
    }
    const auto names = chat_template_names();
    if (std::find(names.begin(), names.end(), name) == names.end() || n_bytes > INT32_MAX) {
        throw error(error_kind::bad_value,
                    "unknown chat template " + name + ", or the conversation is longer than any context");
    }
    std::string text(n_bytes, '\0');
    int32_t     n = llama_chat_apply_template(name.c_str(), chat.data(), chat.size(), add_assistant, text.data(),
                                              int32_t(text.size()));
    if (n > int32_t(text.size())) {
        text.resize(size_t(n));
        n = llama_chat_apply_template(name.c_str(), chat.data(), chat.size(), add_assistant, text.data(), n);
    }
    if (n < 0) {
        throw error(error_kind::bad_value,
                    "the chat template " + name + " cannot write this conversation; choose another (--chat-template)");
    }
    text.resize(size_t(n));
    return text;
}

} // namespace duo
