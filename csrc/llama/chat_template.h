// The chat templates that libllama knows by name.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace duo {

using chat_message = std::pair<std::string, std::string>; // role, content

std::vector<std::string> chat_template_names();

// The messages as a prompt, without BOS; add_assistant: up to where the assistant's answer begins. Throws duo::error.
std::string apply_chat_template(const std::string & name, const std::vector<chat_message> & messages,
                                bool add_assistant);

} // namespace duo
