"""`duo serve`: the HTTP server that programs for llama-server, OpenAI and Anthropic expect.

From the outside in: `serving` (sockets, signals), `app` (routes), `respond` (one request), `writing` (its texts). The
dialects only translate: what a request asks for is `asked` and `chat_asked`, what an answer looks like is in `shapes`.
"""
