"""What clients of deploy/ray_serve.py see while replicas are added, killed and replaced.

    python -m benchmarks.run_ray --out benchmarks/results/ray.json

It needs Ray beside duo: pip install 'ray[serve]'. One replica is started; clients ask without a pause, half of them for
streams. Three things happen one after the other: Ray adds a replica because requests wait; a replica is killed
(SIGKILL); all replicas are replaced by others with another context size. Every request is counted by what became of
it, and the greedy texts are compared. A stream has begun when its first byte is there.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
from benchmarks.servers.child import free_port

DEPLOY = Path(__file__).parents[1] / "deploy"
PATIENCE_S = 120.0
ASKED: dict[str, Any] = {"messages": [{"role": "user", "content": "Tell me a tale."}], "temperature": 0,
                         "ignore_eos": True}  # fmt: skip
NAME = b"ray::ServeReplica"  # of the processes


class Clients:
    """Threads that ask until they are told to end, and what became of their requests, by phase."""

    def __init__(self, url: str, n: int, n_tokens: int) -> None:
        self._url, self._body = url + "/v1/chat/completions", {**ASKED, "max_tokens": n_tokens}
        self.phase = ""
        self.counts: dict[str, Counter[str]] = {}
        self.seconds: dict[str, list[float]] = {}
        self.texts: set[str] = set()
        self._goes_on, self._lock = True, threading.Lock()
        self._threads = [threading.Thread(target=self._run, args=(bool(i % 2),)) for i in range(n)]
        for t in self._threads:
            t.start()

    def end(self) -> None:
        self._goes_on = False
        for t in self._threads:
            t.join()

    def _run(self, stream: bool) -> None:
        while self._goes_on:
            since = time.monotonic()
            what, text = self._stream() if stream else self._whole()
            with self._lock:  # counted where it ends
                self.counts.setdefault(self.phase, Counter())[what] += 1
                self.seconds.setdefault(self.phase, []).append(time.monotonic() - since)
                if text:
                    self.texts.add(text)

    def _whole(self) -> tuple[str, str]:
        try:
            answer = httpx.post(self._url, json=self._body, timeout=PATIENCE_S)
        except httpx.HTTPError as e:
            return f"whole: {type(e).__name__}", ""
        if answer.status_code != 200:
            return f"whole: status {answer.status_code}", ""
        return "whole: written", answer.json()["choices"][0]["message"]["content"]

    def _stream(self) -> tuple[str, str]:
        begun, text = False, ""
        try:
            with httpx.stream("POST", self._url, json={**self._body, "stream": True}, timeout=PATIENCE_S) as answer:
                if answer.status_code != 200:
                    return f"stream: status {answer.status_code}", ""
                for line in answer.iter_lines():
                    begun = True
                    if line == "data: [DONE]":
                        return "stream: written", text
                    if line.startswith("data: "):
                        data = json.loads(line[6:])
                        if "error" in data:
                            return "stream: begun, ended by an error", ""
                        text += data["choices"][0]["delta"].get("content") or ""
        except httpx.HTTPError:
            pass
        return ("stream: begun, cut off" if begun else "stream: lost before it began"), ""


def pids() -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes().startswith(NAME):
                found.append(int(path.parent.name))
        except OSError:  # it has gone
            continue
    return sorted(found)


def wait_until(is_so: Any, seconds: float, what: str) -> float:
    """The seconds that it took."""
    since = time.monotonic()
    while not is_so():
        if time.monotonic() - since > seconds:
            raise SystemExit(f"not after {seconds:g} s: {what}")
        time.sleep(0.1)
    return time.monotonic() - since


def run(n_clients: int, n_tokens: int, seconds: float) -> dict[str, Any]:
    import ray
    from ray import serve

    sys.path.insert(0, str(DEPLOY))
    import ray_serve

    here = {"PYTHONPATH": str(DEPLOY), "DUO_PROFILES": "off"}
    with TemporaryDirectory(prefix="ray") as folder:
        ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, runtime_env={"env_vars": here},
                 _temp_dir=folder)  # fmt: skip
        try:
            port = free_port()
            serve.start(http_options={"host": "127.0.0.1", "port": port})

            def deploy(**more: Any) -> None:
                serve.run(ray_serve.app(ray_serve.Args(n_parallel=2, least=1, most=2, **more)))

            def n_running() -> int:
                (deployment,) = serve.status().applications["default"].deployments.values()
                return int(deployment.replica_states.get("RUNNING", 0))

            deploy()
            clients = Clients(f"http://127.0.0.1:{port}", n_clients, n_tokens)
            try:
                clients.phase = "a replica is added"
                scaled_s = wait_until(lambda: n_running() == 2, 180, "a second replica")
                time.sleep(seconds)
                clients.phase = "a replica is killed"
                os.kill(victim := pids()[0], signal.SIGKILL)
                wait_until(lambda: victim not in pids(), 60, "the end of the killed replica")
                replaced_s = wait_until(lambda: n_running() == 2 and len(pids()) == 2, 180, "a new replica")
                time.sleep(seconds)
                clients.phase = "all replicas are replaced"
                before, since = set(pids()), time.monotonic()
                deploy(n_ctx=2048)
                wait_until(lambda: not before & set(pids()), 180, "other replicas")
                updated_s = time.monotonic() - since
                time.sleep(seconds)
            finally:
                clients.end()
        finally:
            serve.shutdown()
            ray.shutdown()
    return {
        "ray": ray.__version__,
        "clients": n_clients,
        "tokens": n_tokens,
        "places_of_a_replica": 2,
        "seconds_until": {"added": scaled_s, "replaced_after_kill": replaced_s, "all_replaced": updated_s},
        "requests": {k: dict(v) for k, v in clients.counts.items()},
        "seconds_of_a_request": {k: [statistics.median(v), max(v)] for k, v in clients.seconds.items()},
        "different_texts": len(clients.texts),
    }


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--clients", type=int, default=8)
    p.add_argument("-n", type=int, default=400, help="tokens of a text")
    p.add_argument("--seconds", type=float, default=6.0, help="of load after each event")
    p.add_argument("--out", type=Path)
    args = p.parse_args()
    found = run(args.clients, args.n, args.seconds)
    for phase, counts in found["requests"].items():
        print(f"{phase}: " + ", ".join(f"{n} {what}" for what, n in sorted(counts.items())))
    print(f"different texts: {found['different_texts']}; {found['seconds_until']}")
    if args.out is not None:
        from duo.benchmark.bench.head import command_of, machine

        head = {"machine": machine(), "command": command_of(["python", *sys.argv])}
        args.out.write_text(json.dumps({**head, **found}, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
