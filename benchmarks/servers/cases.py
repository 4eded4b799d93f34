"""Requests for a soak: what is asked, which status is right, and where the text stands in an answer."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

# With tools and a system prompt, which the demo pair's own template does not have.
TEMPLATE = (
    "{% if tools %}<|im_start|>system\nTools:{% for t in tools %} {{ t.function.name }}{% endfor %}<|im_end|>\n"
    "{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content or '' }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 8}}, "required": ["name"],
          "additionalProperties": False}  # fmt: skip
TOOL = {"name": "roll", "description": "Rolls dice.", "parameters": SCHEMA}
TALE = [{"role": "user", "content": "Tell me a tale."}]
LINES = [
    "Once upon a time there was a", "The king said to his daughter", "In the forest lived an old man who",
    "It was raining when the ship", "My brother and I had never", "A long time ago, in a town by the sea,",
]  # fmt: skip

Json = Any


@dataclass(frozen=True)
class Case:
    """A request that writes, whose text is always the same."""

    name: str
    path: str
    body: Mapping[str, Any]
    text: Callable[[Json], str]  # of a whole answer
    piece: Callable[[Json], str]  # of an event of a stream


@dataclass(frozen=True)
class Question:
    """A request that writes nothing. expected: statuses that are right."""

    name: str
    method: str
    path: str
    expected: tuple[int, ...] = (200,)
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


def _native(answer: Json) -> str:
    return str(answer["content"])


def _completion(answer: Json) -> str:
    return "".join(f"[{c.get('index', 0)}]{c['text']}" for c in answer["choices"] if c["text"])


def _calls(calls: Any) -> str:
    return "".join((c["function"].get("name") or "") + c["function"]["arguments"] for c in calls or ())


def _chat(answer: Json) -> str:
    m = answer["choices"][0]["message"]
    return (m["content"] or "") + _calls(m.get("tool_calls"))


def _chat_piece(event: Json) -> str:
    if not event["choices"]:
        return ""
    d = event["choices"][0]["delta"]
    return (d.get("content") or "") + _calls(d.get("tool_calls"))


def _messages(answer: Json) -> str:
    return "".join(b["text"] for b in answer["content"] if b["type"] == "text")


def _messages_piece(event: Json) -> str:
    return str(event.get("delta", {}).get("text", ""))


def _responses(answer: Json) -> str:
    return "".join(p["text"] for o in answer["output"] if o["type"] == "message" for p in o["content"])


def _responses_piece(event: Json) -> str:
    return str(event["delta"]) if event["type"] == "response.output_text.delta" else ""


def cases(n: int = 32) -> list[Case]:
    """n: tokens of most texts. The prompt of `long` has some hundred tokens."""
    greedy = {"temperature": 0}
    long = " ".join(f"{i}. {line} {LINES[i % 5]}." for i, line in enumerate(LINES * 6))

    def native(name: str, prompt: str, /, **more: Any) -> Case:
        return Case(name, "/completion", {"prompt": prompt, "n_predict": n, **greedy, **more}, _native, _native)

    found = [
        *(native(f"native {i}", p) for i, p in enumerate(LINES)),
        native("seeded", LINES[0], temperature=0.9, seed=7),
        native("short", "a", n_predict=2),
        native("long", long, cache_prompt=False),
        native("long, many", long[::-1], n_predict=4 * n, temperature=1.0, seed=3),
        native("probabilities", LINES[1], n_probs=5),
        native("grammar", LINES[2], grammar='root ::= ("yes" | "no" | " ")*'),
        native("schema", LINES[3], json_schema=SCHEMA),
        native("plain", LINES[4], mode="plain"),
        native("turns", LINES[5], mode="sync", draft={"n_max": 3}),
        Case("stopped", "/v1/completions", {"prompt": LINES[0], "max_tokens": n, "stop": [" the"], **greedy},
             _completion, _completion),
        Case("chat", "/v1/chat/completions", {"messages": TALE, "max_tokens": n, **greedy}, _chat, _chat_piece),
        Case("tools", "/v1/chat/completions", {"messages": TALE, "max_tokens": 2 * n, "tool_choice": "required",
             "tools": [{"type": "function", "function": TOOL}], **greedy}, _chat, _chat_piece),
        Case("format", "/v1/chat/completions", {"messages": TALE, "max_tokens": n, "response_format":
             {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}, **greedy}, _chat, _chat_piece),
        Case("messages", "/v1/messages", {"messages": TALE, "max_tokens": n, **greedy}, _messages, _messages_piece),
        Case("responses", "/v1/responses", {"input": "Tell me a tale.", "max_output_tokens": n, **greedy},
             _responses, _responses_piece),
    ]  # fmt: skip
    return found


def questions() -> list[Question]:
    """All other routes, and mistakes. The server's limits are those of benchmarks/soak.py."""

    def ask(name: str, path: str, body: Json, *expected: int) -> Question:
        return Question(name, "POST", path, expected or (200,), json.dumps(body).encode())

    gets = ["/health", "/livez", "/v1/models", "/props", "/slots", "/metrics", "/openapi.json", "/", "/ui/page.js",
            "/duo/trace?after=0"]  # fmt: skip
    return [
        *(Question(path, "GET", path) for path in gets),
        ask("tokenize", "/tokenize", {"content": LINES[0], "with_pieces": True}),
        ask("detokenize", "/detokenize", {"tokens": [300, 301, 302]}),
        ask("template", "/apply-template", {"messages": TALE}),
        ask("tokens of a chat", "/v1/chat/completions/input_tokens", {"messages": TALE}),
        ask("tokens of messages", "/v1/messages/count_tokens", {"messages": TALE}),
        ask("tokens of responses", "/v1/responses/input_tokens", {"input": "Tell me a tale."}),
        ask("infill", "/infill", {"input_prefix": "a", "input_suffix": "b"}, 501),
        ask("embeddings", "/v1/embeddings", {"input": "a"}, 501),
        Question("unknown", "GET", "/nothing", (404,)),
        ask("no prompt", "/completion", {}, 400),
        ask("negative", "/completion", {"prompt": "a", "n_predict": 2, "n": -1}, 400),
        ask("too long", "/completion", {"prompt": "word " * 9000, "n_predict": 2}, 400),
        ask("bad grammar", "/completion", {"prompt": "a", "grammar": "root ::= ("}, 400),
        ask("bad schema", "/completion", {"prompt": "a", "json_schema": {"type": "nothing"}}, 400),
        ask("too many at once", "/completion", {"prompt": "a", "n": 100}, 400),
        Question("no JSON", "POST", "/v1/chat/completions", (400,), b"{"),
        Question("no UTF-8", "POST", "/completion", (400,), b'{"prompt": "\xff"}'),
        Question("too large", "POST", "/completion", (413,), b" " * ((1 << 20) + 1)),
        Question("many tokens to count", "POST", "/tokenize", (200,), json.dumps({"content": "a b " * 20000}).encode()),
    ]


def streamed(case: Case, random_: random.Random) -> dict[str, Any]:
    """The body of a case, as a stream in one of its forms."""
    body = {**case.body, "stream": True}
    if case.path.startswith("/v1/c") and random_.random() < 0.5:
        body["stream_options"] = {"include_usage": True}
    if case.path != "/v1/messages" and random_.random() < 0.3:
        body["timings_per_token"] = True
    return body
