"""A server, and a client that reads its answers: for kinds of faults."""

from __future__ import annotations

import json
import random
import re
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from benchmarks.torture.catalogue import EXACT_ARGS, Right
from benchmarks.torture.judge import Seen, WrongError, check_end
from benchmarks.torture.kind import Kind
from benchmarks.torture.process import HANG_S, Process
from benchmarks.torture.room import Room
from benchmarks.torture.ways import is_head


class GoneError(Exception):
    """The server has closed the connection in mid-answer, or was not there."""


class StoppedError(Exception):
    """The server says in mid-stream that it ends. Its argument is the text so far."""


class Server(Kind):
    """What its two kinds share."""

    name = ""
    share = 0
    kills = True

    def __init__(self, room: Room, rng: random.Random) -> None:
        super().__init__(room, rng)
        draft = rng.choice(room.models["demo"].drafts)
        self.n_parallel = rng.choice((1, 2, 4))
        self.args: list[Any] = ["-m", room.models["demo"].target, *(["-md", draft] if draft is not None else [])]
        self.args += ["-c", str(1024 * self.n_parallel), "-np", str(self.n_parallel), "--queue", "40", *EXACT_ARGS]
        self.args += ["--header-timeout", "30", "--body-timeout", "30", "--drain", "60"]
        if not is_head(draft) and rng.random() < 0.3:
            self.args += ["--spec-type", "draft-simple,ngram-map-k" if draft is not None else "ngram-map-k"]
        self.port = 0
        self.start()

    def start(self, *more: str) -> None:
        self.process: Process = self.room.nursery.start("serve", "--port", str(self.port), *self.args, *more)
        self.room.known.add(self.process.pid)
        if not self.process.until(lambda: "texts at once" in self.process.out):
            raise WrongError(f"a server does not start: {self.process.err[-300:]!r}")
        found = re.search(r"http://[\d.]+:(\d+)", self.process.out)
        assert found is not None
        self.port = int(found[1])

    def end(self, what: signal.Signals, allowed: tuple[int, ...]) -> None:
        self.process.send(what)
        code = self.process.wait()
        self.room.known.discard(self.process.pid)
        check_end(code, self.process.err, allowed)

    # ---- one request

    def connect(self) -> socket.socket:
        """Raises GoneError."""
        try:
            s = socket.create_connection(("127.0.0.1", self.port), 10)
        except OSError as e:
            raise GoneError(str(e)) from None
        s.settimeout(HANG_S)
        return s

    @staticmethod
    def request(body: bytes, path: str = "/completion") -> bytes:
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        return head.encode() + b"Content-Length: %d\r\nConnection: close\r\n\r\n%s" % (len(body), body)

    @staticmethod
    def body(rng: random.Random, right: Right, n: int, *, stream: bool) -> dict[str, Any]:
        o = {"prompt": right.prompt, "n_predict": n, "ignore_eos": True, "stream": stream, **right.options}
        o["mode"] = rng.choice(("async", "sync", "plain"))
        if rng.random() < 0.3:
            o["cache_prompt"] = False
        return o

    def ask(self, body: dict[str, Any], *, read: Callable[[str], bool] = lambda _text: True) -> tuple[str, bool]:
        """The text of an answer, and whether it is whole. read: whether to go on, after each piece.

        Raises GoneError: no text began. Raises WrongError: another status than 200.
        """
        with self.connect() as s:
            data, text = b"", ""
            try:
                s.sendall(self.request(json.dumps(body).encode()))
                while piece := s.recv(65536):
                    data += piece
                    head, _, rest = data.partition(b"\r\n\r\n")
                    if body["stream"] and head.startswith(b"HTTP/1.1 200"):
                        text, whole = self._events(rest)
                        if whole or not read(text):
                            return text, whole
            except TimeoutError:
                raise WrongError(f"the server does not answer in {HANG_S:g} s") from None
            except OSError:
                pass
        head, _, rest = data.partition(b"\r\n\r\n")
        if head.startswith(b"HTTP/1.1 503"):
            raise GoneError("503")
        if data and not head.startswith(b"HTTP/1.1 200"):
            raise WrongError(f"the status is not 200: {data[:300]!r}")
        if body["stream"]:
            return text, False
        with suppress(ValueError):
            return json.loads(rest)["content"], True
        return "", False

    @staticmethod
    def _events(data: bytes) -> tuple[str, bool]:
        text, whole = "", False
        for match in re.finditer(rb"data: (\{.*\})\r?\n", data):
            event = json.loads(match[1])
            if "error" in event:
                if event["error"]["code"] == 503:
                    raise StoppedError(text)
                raise WrongError(f"the stream ends with {event}")
            text += event.get("content", "")
            whole = whole or bool(event.get("stop"))
        return text, whole

    def whole(self, rng: random.Random, seen: Seen, n: int = 12) -> None:
        right = self.room.right(rng, plain=True)
        text, whole = self.ask(self.body(rng, right, n, stream=rng.random() < 0.5))
        if not whole or text != right.text(n):
            raise WrongError(f"the text is {text!r}, whole: {whole}, instead of {right.text(n)!r}")
        seen.texts += 1
        seen.tokens += n

    def check_idle(self) -> None:
        """The server comes to rest: no text runs for clients that have gone."""
        until = time.monotonic() + HANG_S
        while True:
            with self.connect() as s:
                s.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                data = b""
                while piece := s.recv(65536):
                    data += piece
            names = ("requests_running", "requests_waiting", "texts_open")
            found = {n: re.search(rf"^duo_{n} (\S+)$".encode(), data, re.MULTILINE) for n in names}
            if all(m is not None and float(m[1]) == 0 for m in found.values()):
                return
            if time.monotonic() > until:
                raise WrongError(f"the server does not come to rest: {found}")
            time.sleep(0.02)

    def close(self) -> None:
        self.check_idle()
        self.end(signal.SIGTERM, (0,))
