"""`duo serve` that is killed, frozen or ended under load, and clients that vanish or send damaged requests."""

from __future__ import annotations

import json
import random
import re
import signal
import socket
import struct
import time
from functools import partial

from benchmarks.torture.beside import beside
from benchmarks.torture.catalogue import N_LONG
from benchmarks.torture.judge import Seen, WrongError
from benchmarks.torture.kinds.server import GoneError, Server, StoppedError

RESET = struct.pack("ii", 1, 0)


class Servers(Server):
    name = "server killed, frozen, ended"
    share = 4
    n_batch = 15

    def fault(self, rng: random.Random, seen: Seen) -> None:
        how = rng.choice(("kill", "kill", "freeze", "freeze", "term", "int int"))
        seen.count(how)
        n_clients = rng.randint(1, 2 * self.n_parallel)
        found = [Seen() for _ in range(n_clients)]
        dice = [random.Random(rng.random()) for _ in range(n_clients)]

        def client(i: int) -> None:
            right = self.room.right(dice[i], plain=True)
            began: list[bool] = []
            try:
                text, whole = self.ask(
                    self.body(dice[i], right, N_LONG, stream=dice[i].random() < 0.8),
                    read=lambda t: began.append(True) is None,
                )
            except StoppedError as e:
                text, whole = e.args[0], False
            except GoneError as e:
                if how == "freeze":
                    raise WrongError(f"a frozen server loses a request: {e}") from None
                return
            found[i].text_part(text, right.text())
            if not whole and (how == "freeze" or (how == "term" and began)):
                raise WrongError(f"a text was lost or cut off when the server was told: {how}")
            if whole and how != "int int" and text != right.text():
                raise WrongError(f"an answer that says it is whole has {len(text)} characters of {len(right.text())}")

        with beside(*(partial(client, i) for i in range(n_clients))):
            time.sleep(rng.uniform(0, 0.25))
            if how == "freeze":
                self.process.send(signal.SIGSTOP)
                time.sleep(rng.uniform(0, 0.3))
                self.process.send(signal.SIGCONT)
            elif how == "kill":
                self.end(signal.SIGKILL, (-9,))
            elif how == "term":
                self.end(signal.SIGTERM, (0,))
            else:
                self.process.send(signal.SIGINT)
                time.sleep(rng.uniform(0, 0.1))
                self.end(signal.SIGINT, (0, 130))
        for s in found:
            seen.add(s)
        if how != "freeze":
            self.start()
        self.whole(rng, seen)


class Clients(Server):
    name = "clients that vanish or send garbage"
    share = 14
    n_batch = 50

    def fault(self, rng: random.Random, seen: Seen) -> None:
        fault = rng.choice(
            (self.vanish, self.vanish, self.breaks_off, self.half, self.garbage, self.damaged, self.crowd)
        )
        seen.count(fault.__name__)
        fault(rng, seen)
        if self.process.poll() is not None:
            raise WrongError(f"the server has ended with {self.process.returncode}: {self.process.err[-300:]!r}")
        if rng.random() < 0.6:
            self.whole(rng, seen)

    def vanish(self, rng: random.Random, seen: Seen) -> None:
        """In the middle of a stream, or before it begins; in order or with a reset."""
        right = self.room.right(rng, plain=True)
        with self.connect() as s:
            body = self.body(rng, right, 400, stream=rng.random() < 0.7)
            s.sendall(self.request(json.dumps(body).encode()))
            if rng.random() < 0.6 and body["stream"]:
                s.recv(rng.choice((1, 300, 3000)))
            else:
                time.sleep(rng.uniform(0, 0.03))
            if rng.random() < 0.5:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        seen.cut += 1

    def breaks_off(self, rng: random.Random, seen: Seen) -> None:
        right, n = self.room.right(rng, plain=True), rng.randrange(300)
        text, _ = self.ask(self.body(rng, right, N_LONG, stream=True), read=lambda t: len(t) < n)
        seen.text_part(text, right.text())

    def half(self, rng: random.Random, seen: Seen) -> None:
        """Half a request."""
        data = self.request(json.dumps(self.body(rng, self.room.right(rng), 20, stream=True)).encode())
        with self.connect() as s:
            s.sendall(data[: rng.randrange(len(data))])
            if rng.random() < 0.3:
                s.shutdown(socket.SHUT_WR)
                s.recv(1000)
        seen.cut += 1

    def garbage(self, rng: random.Random, seen: Seen) -> None:
        self._send(rng.randbytes(rng.choice((1, 10, 100, 5000))) + b"\r\n\r\n", rng, seen)

    def damaged(self, rng: random.Random, seen: Seen) -> None:
        path = rng.choice(("/completion", "/v1/completions", "/v1/chat/completions", "/v1/messages", "/v1/responses",
                           "/tokenize", "/detokenize", "/apply-template", "/infill", "/props"))  # fmt: skip
        body = {"max_tokens": 5, "messages": [{"role": "user", "content": "a"}], "input": "a", "content": "a"}
        body |= {"tokens": [5], **self.body(rng, self.room.right(rng), 5, stream=rng.random() < 0.5)}
        data = bytearray(json.dumps(body).encode())
        if rng.random() < 0.5:  # a value of another kind
            key = rng.choice(list(body))
            body[key] = rng.choice((None, [], {}, "x", -1, 1e308, 2**70, True, [[]], {"a": 1}, "\ud800", [2**40]))
            data = bytearray(json.dumps(body).encode())
        else:
            for _ in range(rng.randint(1, 3)):
                data[rng.randrange(len(data))] = rng.randrange(256)
        self._send(self.request(bytes(data), path), rng, seen)

    def _send(self, data: bytes, rng: random.Random, seen: Seen) -> None:
        """Sends it, and reads what comes: an answer that is no crash, or nothing."""
        with self.connect() as s:
            got = b""
            try:
                s.sendall(data)
                if rng.random() < 0.8:
                    s.shutdown(socket.SHUT_WR)
                while piece := s.recv(65536):
                    got += piece
                    if len(got) > 20_000:
                        break
            except OSError:
                pass
        status = re.match(rb"HTTP/1.1 (\d+)", got)
        if got and status is None:
            raise WrongError(f"this is no answer: {got[:200]!r}")
        if b"Traceback" in got or (status is not None and int(status[1]) == 500):
            raise WrongError(f"a request with {data[-300:]!r} was answered with {got[:500]!r}")
        seen.sentences += status is not None and int(status[1]) >= 400

    def crowd(self, rng: random.Random, seen: Seen) -> None:
        """Some vanish while others' texts are written."""
        dice = [random.Random(rng.random()) for _ in range(2 + self.n_parallel)]
        found = [Seen() for _ in dice]

        def client(i: int) -> None:
            (self.vanish if dice[i].random() < 0.5 else self.whole)(dice[i], found[i])

        with beside(*(partial(client, i) for i in range(len(dice)))):
            pass
        for s in found:
            seen.add(s)
