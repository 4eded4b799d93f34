"""A server for tests: in this process, in a thread of its own, on a port that the system chooses."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from conftest import HANG_S

from duo import Duo
from duo.gguf_tools.switched_duo import SwitchedDuo
from duo.options.serve import ServeOptions
from duo.options.validate import serve_options
from duo.server import listening
from duo.server.lifecycle import Serving
from duo.server.listening import ListeningSocket, listeners
from duo.server.service import Service
from duo.server.settings import ServerSettings

# A template with everything that templates may have: tools, thoughts, a system prompt.
TEMPLATE = (
    "{% if tools %}<|im_start|>system\nTools:{% for t in tools %} {{ t.function.name }}{% endfor %}<|im_end|>\n"
    "{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content or '' }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% if enable_thinking %}<think>\n{% endif %}{% endif %}"
)
CALLED = {
    "type": "function",
    "function": {
        "name": "roll",
        "description": "Rolls dice.",
        "parameters": {
            "type": "object",
            "properties": {"sides": {"type": "integer"}, "name": {"type": "string", "maxLength": 8}},
            "required": ["sides", "name"],
            "additionalProperties": False,
        },
    },
}
TALE = [{"role": "user", "content": "Tell me a tale."}]
PROMPT = "Once upon a time"
GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 16}
ENDLESS: dict[str, Any] = {"prompt": "Once upon a time", "ignore_eos": True, "n_predict": 1500, "cache_prompt": False}
NARROW = {"queue": 2, "header_timeout": 600.0, "body_timeout": 600.0, "max_body": 1.0, "sse_ping_interval": 1}


@dataclass
class Server:
    url: str
    service: Service
    serving: Serving

    @property
    def duo(self) -> Duo:
        return self.service.duo

    def post(self, path: str, body: Any, **more: Any) -> httpx.Response:
        return httpx.post(self.url + path, json=body, timeout=HANG_S, **more)

    def get(self, path: str, **more: Any) -> httpx.Response:
        return httpx.get(self.url + path, timeout=HANG_S, **more)

    def send(self, path: str, body: bytes, headers: dict[str, str]) -> httpx.Response:
        """A body that is not JSON by its type."""
        return httpx.post(self.url + path, content=body, headers=headers, timeout=HANG_S)

    def events(self, path: str, body: Any) -> list[tuple[str, Any]]:
        """Names and data of a stream; the data of [DONE] is that text."""
        response = self.post(path, {**body, "stream": True})
        assert response.status_code == 200, response.text
        assert response.headers["content-type"].startswith("text/event-stream")
        return parsed(response.text)

    def n_refused(self, reason: str) -> int:
        """Requests so far, as its metrics count them."""
        line = f'duo_requests_refused_total{{reason="{reason}"}} '
        return int(float(self.service.metrics.page.decode().partition(line)[2].split()[0]))

    def wait_until_idle(self) -> None:
        """No text is inside any more."""
        until = time.monotonic() + HANG_S
        while self.service.is_busy or self.duo.session.turns.owners or self.service.running:
            assert time.monotonic() < until
            time.sleep(0.005)

    def wait_for_writings(self, n: int) -> None:
        """So many requests for texts are answered."""
        until = time.monotonic() + HANG_S
        while len(self.service.writings) < n:
            assert time.monotonic() < until
            time.sleep(0.002)

    def wait_for_texts(self, n: int) -> None:
        until = time.monotonic() + HANG_S
        while len(self.service.running) < n:
            assert time.monotonic() < until
            time.sleep(0.002)


def narrow() -> AbstractContextManager[Server]:
    """A server with two places, whose passes are slow, and room for two that wait. Its clients may be slow."""
    return served(NARROW, n_parallel=2, n_ctx=4096, delay=(30_000, 1))


@contextmanager
def with_small_buffers() -> Iterator[None]:
    """Servers that start meanwhile soon have to wait for a client that does not read."""

    def small(options: ServeOptions) -> list[ListeningSocket]:
        found = listening.listeners(options)
        for x in found:
            x.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)  # connections inherit it
        return found

    with pytest.MonkeyPatch.context() as m:
        m.setattr(__name__ + ".listeners", small)
        yield


def raw(server: Server, data: bytes = b"") -> socket.socket:
    host, port = server.url.removeprefix("http://").split(":")
    s = socket.create_connection((host, int(port)), HANG_S)
    s.sendall(data)
    return s


def one_answer(s: socket.socket) -> bytes:
    """Its head and its body, and nothing that follows."""
    found = b""
    while b"\r\n\r\n" not in found:
        byte = s.recv(1)
        assert byte, found
        found += byte
    n = int(found.lower().partition(b"content-length: ")[2].split()[0])
    return found + s.recv(n, socket.MSG_WAITALL)


def all_of(s: socket.socket) -> bytes:
    """What comes until the server ends the connection."""
    found = b""
    while data := s.recv(1000):
        found += data
    return found


def request_for(path: str, body: dict[str, Any]) -> bytes:
    data = json.dumps(body).encode()
    return b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (path.encode(), len(data), data)


def parsed(stream: str) -> list[tuple[str, Any]]:
    found = []
    for block in stream.split("\n\n"):
        name, data = "", None
        for line in block.split("\n"):
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                text = line.removeprefix("data: ")
                data = text if text == "[DONE]" else json.loads(text)
            else:
                assert not line.strip(":"), line
        if data is not None:
            found.append((name, data))
    return found


@contextmanager
def served(given: dict[str, Any] | None = None, **options: Any) -> Iterator[Server]:
    """given: options of the server; the rest are those of Duo."""
    asked = {"port": 0, "drain": 5.0, **(given or {})}
    settings = ServerSettings.of(asked, "demo")
    service = Service(settings)
    found = listeners(serve_options(asked))
    there = threading.Event()

    def load() -> Duo:
        return SwitchedDuo(**{"n_ctx": 2048, "n_parallel": 4, "trace": service.events, **options})

    serving = Serving(service, found, load, drain_s=asked["drain"], ready=lambda _duo: there.set(),
                      cert=asked.get("ssl_cert_file"), key=asked.get("ssl_key_file"),
                      sleep_s=max(0, asked.get("sleep_idle_seconds", 0)))  # fmt: skip
    url = found[0].url("https" if asked.get("ssl_cert_file") else "http")
    thread = threading.Thread(target=serving.run, name="server")
    thread.start()
    try:
        assert there.wait(HANG_S)
        yield Server(url + settings.api_prefix, service, serving)
    finally:
        serving.end()
        serving.end()  # at once
        thread.join(HANG_S)
        assert not thread.is_alive()
