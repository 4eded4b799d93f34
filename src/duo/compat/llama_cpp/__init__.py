"""llama_cpp.Llama's calls: completions and chats, whose answers have OpenAI's shape."""
