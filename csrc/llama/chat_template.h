// The chat templates that libllama knows by name.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace duo {

using chat_message = std::pair<std::string, std::string>; // role, content

std::vector<std::string> chat_template_names();

// Returns the messages as a prompt, without BOS. add_assistant: also the beginning of the assistant's answer. Throws
// duo::error.
std::string apply_chat_template(const std::string & name, const std::vector<chat_message> & messages,
                                bool add_assistant);

} // namespace duo
