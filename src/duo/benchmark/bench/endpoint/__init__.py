"""`duo bench --url`: servers with OpenAI's routes, measured from outside.

`address` reads --url, `client` sends requests, `events` and `answer` read streams, `writer` is what `slots` calls.
"""
