"""A small server with OpenAI's routes that sends what a test wants, byte for byte."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from waits import join

MODELS: dict[str, Any] = {"object": "list", "data": [{"id": "fake-model", "object": "model", "owned_by": "somebody"}]}


@dataclass
class Reply:
    """pieces: of the body, each sent alone. A body without an end: the connection breaks in the middle."""

    pieces: list[bytes]
    status: int = 200
    kind: str = "text/event-stream"
    breaks: bool = False


def event(data: Any) -> bytes:
    return b"data: " + (data if isinstance(data, bytes) else json.dumps(data).encode()) + b"\n\n"


def chunk(text: str, finish: str | None = None, **more: Any) -> bytes:
    return event({"choices": [{"text": text, "index": 0, "finish_reason": finish}], **more})


def usage(n: int) -> bytes:
    return event({"choices": [], "usage": {"completion_tokens": n}})


DONE = event(b"[DONE]")
GOOD = [chunk("one two"), b": ping\n\n", chunk(" three"), chunk("", "length"), usage(5), DONE]


@dataclass
class Fake:
    """reply: of the n-th text, from 0. asked: the bodies of requests for texts, and headers of all."""

    url: str
    reply: Callable[[int], Reply]
    models: Reply
    asked: list[Mapping[str, Any]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)


@contextmanager
def fake_endpoint(
    reply: Callable[[int], Reply] = lambda _n: Reply(GOOD), models: Reply | None = None
) -> Iterator[Fake]:
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def send(self, r: Reply) -> None:
            self.send_response(r.status)
            self.send_header("Content-Type", r.kind)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for piece in r.pieces:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                self.wfile.flush()
            if r.breaks:
                self.close_connection = True
                self.connection.close()
            else:
                self.wfile.write(b"0\r\n\r\n")

        def do_GET(self) -> None:
            fake.keys.append(self.headers["Authorization"])
            self.send(fake.models)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                n = len(fake.asked)
                fake.asked.append(body)
                fake.paths.append(self.path)
                fake.keys.append(self.headers["Authorization"])
            self.send(fake.reply(n))

        def log_message(self, *_args: Any) -> None:
            pass

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_args: Any) -> None:
            """The client has gone, as some tests want it."""

    server = Quiet(("127.0.0.1", 0), Handler)
    listed = models or Reply([json.dumps(MODELS).encode()], kind="application/json")
    fake = Fake(f"http://127.0.0.1:{server.server_address[1]}", reply, listed)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield fake
    finally:
        server.shutdown()
        join(thread)
        server.server_close()
