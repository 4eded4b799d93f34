"""A server with OpenAI's routes whose texts depend on the request only, and its faults, by name."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from fake_endpoint import DONE, MODELS, event
from waits import join

BOOKING = {"guests": 4, "name": "Miller", "day": "friday", "outside": False}
WORDS = [f" w{i}" for i in range(30)]
NEAR, GAP = " near", 0.05  # a word that nearly ties with each, and by how much
OF_COMPANY = {"in_company", "arguments", "seeds", "fails", "full", "flaky", "full_house"}
WAIT_S = 0.05  # for another request, before one counts as alone


class FaultyServer:
    """faults: in_company (a word nearly ties and is taken where others are in flight), arguments (calls are cut there),
    seeds (they count for nothing there), fails (a text in five ends with status 500 there), full (one in five is
    refused there), streams (a stream lacks a word), tools and logprobs (they are refused), schema (OpenAI's form of it
    is refused), dies (all is refused with a broken connection, after 12 texts), flaky (calls and JSON alone end with
    status 500), full_house (all texts in a batch are refused)."""

    def __init__(self, *faults: str) -> None:
        self.faults = frozenset(faults)
        self.asked: list[dict[str, Any]] = []
        self._flight = 0
        self._came = threading.Condition()

    @property
    def n_asked(self) -> int:
        return len(self.asked)

    def answer(self, path: str, body: dict[str, Any]) -> tuple[int, Any, list[str]]:
        """Status, choice, and the pieces of its text."""
        with self._came:
            self._flight += 1
            self._came.notify_all()
            self.asked.append(body)
            n = len(self.asked)
            # Whether another one is here, or comes.
            crowded = bool(self.faults & OF_COMPANY) and (
                self._flight > 1 or self._came.wait_for(lambda: len(self.asked) > n, WAIT_S)
            )
        try:
            return self._answer(path, body, n, crowded=crowded)
        finally:
            with self._came:
                self._flight -= 1

    def _answer(self, path: str, body: dict[str, Any], n: int, *, crowded: bool) -> tuple[int, Any, list[str]]:
        has = self.faults.__contains__
        if ("tools" in body and has("tools")) or ("logprobs" in body and has("logprobs")):
            return 400, {"error": {"message": "not here"}}, []
        if body.get("response_format", {}).get("type") == "json_schema" and has("schema"):
            return 422, {"error": {"message": "unknown form"}}, []
        if crowded and n % 5 == 0 and has("fails"):
            return 500, {"error": {"message": "oops"}}, []
        if not crowded and path.endswith("/chat/completions") and has("flaky"):
            return 500, {"error": {"message": "oops"}}, []
        if crowded and ((n % 5 == 1 and has("full")) or has("full_house")):
            return 503, {"error": {"message": "full"}}, []
        if path.endswith("/chat/completions"):
            text = json.dumps(BOOKING)
            text = text[:-3] if crowded and has("arguments") else text
            call = {"type": "function", "id": "call", "function": {"name": "book_table", "arguments": text}}
            message = {"content": None, "tool_calls": [call]} if "tools" in body else {"content": text}
            return 200, {"message": message, "finish_reason": "stop"}, [text]
        seed = body.get("seed", 0) + (n if "seed" in body and crowded and has("seeds") else 0)
        dice = random.Random(f"{body['prompt']} {seed}")
        pieces = dice.choices(WORDS, k=min(8, body["max_tokens"]))
        if crowded and has("in_company"):
            pieces[3] = NEAR
        if body["stream"] and has("streams"):
            del pieces[5]
        choice: dict[str, Any] = {"text": "".join(pieces), "finish_reason": "length"}
        if "logprobs" in body:
            choice["logprobs"] = {"tokens": pieces, "token_logprobs": [-0.5] * len(pieces),
                                  "top_logprobs": [{p: -0.5, NEAR: -0.5 - GAP} for p in pieces]}  # fmt: skip
        return 200, choice, pieces


def streamed(choice: dict[str, Any], pieces: list[str]) -> list[bytes]:
    found = []
    for at, piece in enumerate(pieces):
        if "message" not in choice:
            part: dict[str, Any] = {"text": piece}
        elif calls := choice["message"].get("tool_calls"):
            call = calls[0] if at == 0 else {"function": {"arguments": piece}}
            part = {"delta": {"tool_calls": [{"index": 0, **call}]}}
        else:
            part = {"delta": {"content": piece}}
        found.append(event({"choices": [{"index": 0, "finish_reason": None, **part}]}))
    end: dict[str, Any] = {"index": 0, "finish_reason": choice["finish_reason"], "text": "", "delta": {}}
    return [*found, event({"choices": [end]}), DONE]


@contextmanager
def faulty_server(*faults: str) -> Iterator[tuple[str, FaultyServer]]:
    """Its URL."""
    faulty = FaultyServer(*faults)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def send(self, status: int, kind: str, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            self.send(200, "application/json", json.dumps(MODELS).encode())

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if "dies" in faulty.faults and faulty.n_asked >= 12:
                self.close_connection = True
                self.connection.close()
                return
            status, choice, pieces = faulty.answer(self.path, body)
            if status != 200:
                self.send(status, "application/json", json.dumps(choice).encode())
            elif body["stream"]:
                self.send(status, "text/event-stream", b"".join(streamed(choice, pieces)))
            else:
                self.send(status, "application/json", json.dumps({"choices": [choice]}).encode())

        def log_message(self, *_args: Any) -> None:
            pass

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 64

        def handle_error(self, *_args: Any) -> None:
            """The client has gone, as some tests want it."""

    server = Quiet(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", faulty
    finally:
        server.shutdown()
        join(thread)
        server.server_close()
