"""Clients that ask a server for everything, behave well or badly, and check every answer."""

from __future__ import annotations

import json
import random
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import httpx
from benchmarks.servers.cases import Case, Question, streamed

PATIENCE_S = 300.0
N_WRONG = 20  # after so many mistakes the rest is not told


class Wrong:
    """What was not as it should be. Threads share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.told: list[str] = []
        self.n = 0

    def add(self, what: str) -> None:
        with self._lock:
            self.n += 1
            if len(self.told) < N_WRONG:
                self.told.append(what)


def events_of(lines: Iterator[str]) -> Iterator[Any]:
    """The data of a stream's events as JSON, without [DONE]."""
    for line in lines:
        if line.startswith("data: ") and line != "data: [DONE]":
            yield json.loads(line.removeprefix("data: "))


def plain_texts(url: str, cases: Sequence[Case]) -> dict[str, str]:
    """The right text of each case: written alone, without the draft. Raises httpx.HTTPError."""
    found = {}
    for case in cases:
        answer = httpx.post(url + case.path, json={**case.body, "mode": "plain"}, timeout=PATIENCE_S)
        answer.raise_for_status()
        found[case.name] = case.text(answer.json())
    return found


class Client:
    """One client, for one thread. right: texts by name of the case."""

    def __init__(
        self, url: str, cases: Sequence[Case], questions: Sequence[Question], right: Mapping[str, str], wrong: Wrong,
        seed: int,
    ) -> None:  # fmt: skip
        self._url, self._cases, self._questions, self._right, self._wrong = url, cases, questions, right, wrong
        self._random = random.Random(seed)
        self.open()
        self.done: Counter[str] = Counter()  # what was asked, by kind

    def open(self) -> None:
        """Connects anew."""
        self._http = httpx.Client(base_url=self._url, timeout=PATIENCE_S)

    def close(self) -> None:
        self._http.close()

    def once(self) -> None:
        """One request of a random kind. Nothing is raised: what is wrong is told."""
        ways = (self.whole, self.stream, self.question, self.cancel, self.vanish, self.slow)
        way = self._random.choices(ways, (30, 40, 20, 6, 4, 0.3))[0]
        case = self._random.choice(self._cases)
        try:
            way(case)
        except (httpx.HTTPError, OSError, ValueError, LookupError, TypeError, AttributeError) as e:
            self._wrong.add(f"{way.__name__} of {case.name}: {type(e).__name__}: {e}")

    def _count(self, status: int, kind: str) -> bool:
        """Whether the text was written. A full queue is no mistake."""
        self.done[kind if status != 429 else "refused"] += 1
        return status == 200

    def whole(self, case: Case) -> None:
        answer = self._http.post(case.path, json=dict(case.body))
        if self._count(answer.status_code, "whole texts"):
            self._compare(case, case.text(answer.json()), "")
        elif answer.status_code != 429:
            self._wrong.add(f"{case.name}: status {answer.status_code}: {answer.text[:200]}")

    def stream(self, case: Case) -> None:
        with self._http.stream("POST", case.path, json=streamed(case, self._random)) as answer:
            if self._count(answer.status_code, "streams"):
                pieces = [(e, case.piece(e)) for e in events_of(answer.iter_lines())]
                if failed := [e for e, _ in pieces if e.get("error")]:
                    self._wrong.add(f"{case.name}: the stream ends with {failed[0]}")
                else:
                    self._compare(case, "".join(p for _, p in pieces), ", streamed")
            elif answer.status_code != 429:
                self._wrong.add(f"{case.name}, streamed: status {answer.status_code}: {answer.read()[:200]!r}")

    def _compare(self, case: Case, text: str, how: str) -> None:
        right = self._right[case.name]
        if case.path == "/v1/completions":  # pieces repeat the number of the choice
            text, right = text.replace("[0]", ""), right.replace("[0]", "")
        if text != right:
            self._wrong.add(f"{case.name}{how}: {text!r} instead of {right!r}")

    def question(self, _: Case) -> None:
        q = self._random.choice(self._questions)
        answer = self._http.request(q.method, q.path, content=q.body, headers=dict(q.headers))
        self.done["other requests"] += 1
        if answer.status_code not in q.expected:
            self._wrong.add(f"{q.name}: status {answer.status_code}, not {q.expected}: {answer.text[:200]}")
        elif "Traceback" in answer.text:
            self._wrong.add(f"{q.name}: a traceback in the answer")

    def cancel(self, case: Case) -> None:
        """Goes in the middle of a stream."""
        n = self._random.randrange(8)
        with self._http.stream("POST", case.path, json={**case.body, "stream": True, "ignore_eos": True}) as answer:
            if self._count(answer.status_code, "cancelled"):
                for i, _ in enumerate(answer.iter_raw()):
                    if i >= n:
                        break
            elif answer.status_code not in (400, 429):  # 400: a grammar that must end, without an end
                self._wrong.add(f"{case.name}, cancelled: status {answer.status_code}: {answer.read()[:200]!r}")

    def vanish(self, case: Case) -> None:
        """Goes without a word: after half of the request, after all of it, or a moment later."""
        stream = self._random.random() < 0.5
        body = json.dumps({**case.body, "n_predict": 400, "max_tokens": 400, "stream": stream}).encode()
        head = f"POST {case.path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        with self._connection() as s:
            s.sendall(head + body[: self._random.choice((len(body) // 2, len(body)))])
            time.sleep(self._random.choice((0.0, 0.02, 0.2)))
            if self._random.random() < 0.5:  # with a reset
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.done["vanished"] += 1

    def slow(self, case: Case) -> None:
        """Never sends the rest of its request."""
        with self._connection() as s:
            s.sendall(f"POST {case.path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{{".encode())
            found = b""
            while data := s.recv(1000):
                found += data
        self.done["too slow"] += 1
        if not found.startswith(b"HTTP/1.1 408"):
            self._wrong.add(f"a slow body: {found[:60]!r} instead of status 408")

    def _connection(self) -> socket.socket:
        host, port = self._url.removeprefix("http://").split(":")
        return socket.create_connection((host, int(port)), PATIENCE_S)
