"""Minutes of mixed load against `duo serve`, and whether anything grows or any text differs.

    python -m benchmarks.soak --minutes 30 --out FILE

Clients ask for all routes at once: whole texts and streams, chats, tools, grammars, long and short prompts, mistakes;
some cancel, vanish or are too slow. Every text must equal that of plain decoding, written alone before, and every
status must be the expected one (429 if the queue is full). Between laps the clients pause, and when the server is idle
its memory, threads, descriptors, cells of the cache and kept texts are noted. The exit code is 1 if something was
wrong, or grew from the first laps to the last ones. The very first lap is not counted and goes on until the server is
warm.

Options that this script does not know go to `duo serve`; without any it serves the demo pair.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
from benchmarks.servers.cases import TEMPLATE, cases, questions
from benchmarks.servers.child import Child, started
from benchmarks.servers.load import Client, Wrong, plain_texts

from duo.benchmark.bench.head import command_of, machine

N_PLACES, N_CTX, N_QUEUE = 4, 4096, 8
N_WARM = 600  # requests until allocators and caches have what they keep
IDLE_S = 60.0
LIMITS = ["--queue", str(N_QUEUE), "--max-body", "1", "--header-timeout", "2", "--body-timeout", "2"]
# What may be more at the end than at the beginning: allocators keep what was freed.
GROWTH = {"own": 16.0, "threads": 2, "files": 2}
OF_METRICS = ("cache_tokens", "draft_cache_tokens", "texts_kept", "texts_kept_bytes", "texts_open", "texts_parked",
              "requests_running", "requests_waiting")  # fmt: skip
EMPTY = ("texts_kept", "texts_kept_bytes", "texts_open", "texts_parked", "requests_running", "requests_waiting")


def figures(url: str) -> dict[str, float]:
    page = httpx.get(url + "/metrics", timeout=30).text
    return {name: float(value) for name, value in re.findall(r"^duo_(\w+) (\S+)$", page, re.MULTILINE)}


def idle(child: Child) -> dict[str, float]:
    """What the server holds when nothing runs. Raises SystemExit: something does not end."""
    until = time.monotonic() + IDLE_S
    while True:
        found = figures(child.url)
        if not any(found[name] for name in ("requests_running", "requests_waiting", "texts_open")):
            break
        if time.monotonic() > until:
            raise SystemExit(f"the server is not idle after {IDLE_S:g} s without clients: {found}")
        time.sleep(0.05)
    time.sleep(0.3)  # connections of clients that have gone
    return {**child.held().as_json(), **{name: found[name] for name in OF_METRICS}}


def lap(clients: Sequence[Client], seconds: float) -> None:
    """All clients ask for so long, and end what they have begun."""
    until = time.monotonic() + seconds

    def work(client: Client) -> None:
        while time.monotonic() < until:
            client.once()

    threads = [threading.Thread(target=work, args=(c,)) for c in clients]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


def grown(laps: Sequence[dict[str, float]]) -> list[str]:
    """What grew. Compares the medians of the first and the last third of the laps."""
    n = max(1, len(laps) // 3)
    found = []
    for name, most in GROWTH.items():
        before, after = (statistics.median(x[name] for x in part) for part in (laps[:n], laps[-n:]))
        if after > before + most:
            found.append(f"{name} grew from {before:g} to {after:g}")
    for name in EMPTY:
        if any(x[name] for x in laps):
            found.append(f"{name} of an idle server: {[x[name] for x in laps]}")
    if (most := max(x["cache_tokens"] for x in laps)) > N_CTX:
        found.append(f"the cache holds {most:g} tokens, {N_CTX} is its size")
    return found


def soak(seconds: float, n_clients: int, n_laps: int, options: Sequence[str], seed: int) -> dict[str, Any]:
    """The figures, and what was wrong."""
    with TemporaryDirectory() as folder:
        template = Path(folder) / "template.jinja"
        template.write_text(TEMPLATE, "utf-8")
        command = [sys.executable, "-m", "duo", "serve", "--port", "{port}", "-c", str(N_CTX), "-np", str(N_PLACES),
                   *LIMITS, "--chat-template-file", str(template), *options]  # fmt: skip
        with started("duo serve", command) as child:
            wrong, asked = Wrong(), cases()
            right = plain_texts(child.url, asked)
            clients = [Client(child.url, asked, questions(), right, wrong, seed + i) for i in range(n_clients)]
            laps = []
            try:
                for i in range(n_laps + 1):
                    lap(clients, seconds / (n_laps + 1))
                    while sum(sum(c.done.values()) for c in clients) < N_WARM:
                        lap(clients, 1.0)
                    for client in clients:
                        client.close()  # idle connections are descriptors too
                        client.open()
                    laps.append(idle(child))
                    words = ", ".join(f"{name} {value:.6g}" for name, value in laps[-1].items() if value)
                    print(f"lap {i}: {sum(sum(c.done.values()) for c in clients)} requests; {words}", flush=True)
            finally:
                for client in clients:
                    client.close()
            last = figures(child.url)
    done = sum((c.done for c in clients), Counter())
    if missing := [k for k in ("whole texts", "streams", "other requests", "cancelled", "vanished") if not done[k]]:
        wrong.add(f"never asked for: {', '.join(missing)}; give it more time")
    return {
        "seconds": seconds,
        "clients": n_clients,
        "requests": dict(done),
        "generated_tokens": last["generated_tokens_total"],
        "accepted_tokens": last["accepted_tokens_total"],
        "drafted_tokens": last["drafted_tokens_total"],
        "laps": laps,
        "n_wrong": wrong.n,
        "wrong": wrong.told,
        "grown": grown(laps[1:]),
    }


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--minutes", type=float, default=30.0)
    p.add_argument("--clients", type=int, default=10)
    p.add_argument("--laps", type=int, default=12)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--out", type=Path)
    args, options = p.parse_known_args()
    found = soak(args.minutes * 60, args.clients, args.laps, options, args.seed)
    print(", ".join(f"{n} {kind}" for kind, n in sorted(found["requests"].items())))
    for what in (*found["wrong"], *found["grown"]):
        print(f"wrong: {what}")
    if args.out is not None:
        found = {"machine": machine(), "command": command_of(sys.argv), **found}
        args.out.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    if found["n_wrong"] or found["grown"]:
        raise SystemExit(f"{found['n_wrong']} answers were wrong; what grew: {', '.join(found['grown']) or 'nothing'}")
    print("no text differs, no status is wrong, nothing grew")


if __name__ == "__main__":
    main()
