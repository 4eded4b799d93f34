"""OpenAI's answers: one home for each shape, for llama_cpp's calls and for the server's routes."""
