"""Chat templates, and what models write in chats: reasoning, answers, calls of tools."""
