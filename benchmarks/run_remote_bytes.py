"""Bytes on the wire between a target and its draft, GGML RPC (--rpc) and token ids (--draft-host), through a proxy.

    python benchmarks/run_remote_bytes.py --work build/bytes --out benchmarks/results/remote-bytes.json
    python benchmarks/run_remote_bytes.py --proxy 127.0.0.1:50052    only a proxy: prints its port, and sums on Ctrl-C

Uses the demo pair unchanged, and with a vocabulary of 128,256 tokens (the added tokens have zero weights).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from run_overhead import with_vocabulary

from duo.benchmark.bench.head import command_of, head_of
from duo.gguf_tools.switched_duo import SwitchedDuo
from duo.models.demo import demo_pair

PROMPT = "Once upon a time there was a little tin soldier who"

WAYS: dict[str, dict[str, Any]] = {
    "planned": {},
    "chain of 4": {"n_draft": 4, "n_draft_branches": 1, "draft_tree": "chain", "mode": "sync"},
}


class CountingProxy:
    """Forwards TCP connections to `host:port` and counts bytes and pieces, each way. `endpoint` is its own address."""

    def __init__(self, to: str) -> None:
        host, _, port = to.rpartition(":")
        self._to = (host, int(port))
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"127.0.0.1:{self._listening.getsockname()[1]}"
        self.n_up = self.n_down = self.n_pieces_up = self.n_pieces_down = 0  # up: to `host:port`
        self._open: list[socket.socket] = []
        self._closing = False
        threading.Thread(target=self._accept, daemon=True).start()

    def counts(self) -> dict[str, int]:
        return {
            "up": self.n_up, "down": self.n_down, "pieces_up": self.n_pieces_up, "pieces_down": self.n_pieces_down,
        }  # fmt: skip

    def close(self) -> None:
        self._closing = True
        self._listening.close()
        for s in self._open:
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while not self._closing:
            near = None
            try:
                near = self._listening.accept()[0]
                far = socket.create_connection(self._to)
            except OSError:
                if near is not None:
                    near.close()
                if not self._closing:
                    time.sleep(0.05)
                continue
            for s in (near, far):
                s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._open += [near, far]
            threading.Thread(target=self._pass, args=(near, far), daemon=True).start()

    def _pass(self, near: socket.socket, far: socket.socket) -> None:
        with near, far, selectors.DefaultSelector() as both, contextlib.suppress(OSError):
            both.register(near, selectors.EVENT_READ, (far, True))
            both.register(far, selectors.EVENT_READ, (near, False))
            while True:
                for key, _ in both.select():
                    to, is_up = key.data
                    data = key.fileobj.recv(1 << 18)  # type: ignore[union-attr]
                    if not data:
                        return
                    to.sendall(data)
                    if is_up:
                        self.n_up, self.n_pieces_up = self.n_up + len(data), self.n_pieces_up + 1
                    else:
                        self.n_down, self.n_pieces_down = self.n_down + len(data), self.n_pieces_down + 1


@contextlib.contextmanager
def host(pattern: str, *args: str) -> Iterator[str]:
    """Runs a `duo` command on 127.0.0.1, and yields the address that it prints."""
    p = subprocess.Popen([sys.executable, "-m", "duo", *args], stdout=subprocess.PIPE, text=True)
    try:
        assert p.stdout is not None
        found = next((m for line in p.stdout if (m := re.search(pattern, line))), None)
        if found is None:
            raise RuntimeError(f"duo {args[0]} did not start")
        threading.Thread(target=p.stdout.read, daemon=True).start()
        time.sleep(0.5)
        yield found[1]
    finally:
        p.send_signal(signal.SIGTERM)
        p.wait()


def measured(proxy: CountingProxy, n_tokens: int, model: Path, draft: Path | None, **options: Any) -> dict[str, Any]:
    """Measures one text after an uncounted one, which covers the loading of the model and the first graphs."""
    with SwitchedDuo(model, draft, n_ctx=1024, always=True, **options) as d:
        d.generate(PROMPT, max_tokens=32, temperature=0)
        while not d.timings["draft_n_accepted"]:
            d.generate(PROMPT, max_tokens=32, temperature=0)
        out: dict[str, Any] = {"before": proxy.counts()}
        for name, how in WAYS.items():
            time.sleep(0.5)
            before = proxy.counts()
            t = d.generate(PROMPT, max_tokens=n_tokens, temperature=0, **how).timings
            time.sleep(0.5)
            text = {k: v - before[k] for k, v in proxy.counts().items()}
            wire = text["up"] + text["down"]
            out[name] = text | {
                "tokens": t["predicted_n"], "drafted": t["draft_n"], "accepted": t["draft_n_accepted"],
                "bytes_per_drafted": round(wire / max(1, t["draft_n"])),
                "bytes_per_accepted": round(wire / max(1, t["draft_n_accepted"])),
            }  # fmt: skip
        return out


def compare(work: Path, n_tokens: int) -> dict[str, Any]:
    work.mkdir(parents=True, exist_ok=True)
    out: dict[str, Any] = {}
    for n_vocab in (0, 128_256):
        pair = demo_pair()
        if n_vocab:
            pair = tuple(with_vocabulary(p, work / f"{n_vocab}-{p.name}", n_vocab) for p in pair)  # type: ignore[assignment]
        name = f"vocabulary {n_vocab or 'of the demo pair'}"
        with host(r"endpoint\s*: (\S+)", "rpc-server", "-p", "0") as there:
            proxy = CountingProxy(there)
            out[f"GGML RPC, {name}"] = measured(proxy, n_tokens, pair[0], pair[1], rpc=proxy.endpoint)
            proxy.close()
        with host(
            r" on (\S+:\d+)", "draft-host", "-md", str(pair[1]), "-cd", "1024", "--listen", "127.0.0.1:0"
        ) as there:
            proxy = CountingProxy(there)
            out[f"token ids, {name}"] = measured(proxy, n_tokens, pair[0], None, draft_host=proxy.endpoint)
            proxy.close()
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--proxy", metavar="HOST:PORT", help="only forward connections to this address, and count")
    parser.add_argument("--work", type=Path, default=Path("build/bytes"))
    parser.add_argument("--out", type=Path)
    parser.add_argument("-n", type=int, default=256, help="tokens")
    args = parser.parse_args()
    if args.proxy is not None:
        proxy = CountingProxy(args.proxy)
        print(proxy.endpoint, flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                time.sleep(1)
        print(json.dumps(proxy.counts()))
        return
    result = {"head": head_of([], command_of(sys.argv), {"n": args.n}), "ways": compare(args.work, args.n)}
    text = json.dumps(result, indent=1) + "\n"
    if args.out is None:
        print(text)
    else:
        args.out.write_text(text)


if __name__ == "__main__":
    main()
