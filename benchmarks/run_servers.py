"""duo serve beside other servers of llama.cpp on the same target and cores, a closed loop of 1 to 16 clients.

    python -m benchmarks.run_servers --target big.gguf --draft small.gguf --clients 1,2,4,8,16 \
        --llama-cpp-python path/to/python --llama-server path/to/llama-server --out FILE

One server runs at a time. In each round they take turns, and each writes the same greedy texts. As many requests as
there are clients are in flight at any time. duo serve runs with its defaults (four texts at once), llama-server with as
many slots and a context of its own for each, llama-cpp-python's server with as many threads as the machine has cores
(its default is half of them). The latter writes one text after the other. It and llama-server use stock kernels.

A file of an earlier run is added to: levels that are measured again take the place of the old ones.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.servers.child import Child, started

from duo.benchmark.bench.arms import Arm
from duo.benchmark.bench.endpoint.address import parse_address
from duo.benchmark.bench.endpoint.client import EndpointClient
from duo.benchmark.bench.endpoint.writer import EndpointWriter
from duo.benchmark.bench.head import command_of, machine, settings_of
from duo.benchmark.bench.questions import Question, choose, read
from duo.benchmark.bench.record import MeasuredAnswer
from duo.benchmark.bench.slots import Round, each_round
from duo.errors import DuoError, PeerLostError

PLAIN = "duo, no draft"  # its texts, one at a time, are what the others are compared with
CLOSED = "without sending a response"  # a kept connection that the server was just closing: sent again, once
N_CTX = 2048  # of a text; llama-cpp-python's default


class Failures(EndpointWriter):
    """Counts requests that fail, and goes on."""

    def __init__(self, clients: Sequence[EndpointClient], fields: dict[str, Any]) -> None:
        super().__init__(clients, fields, count_chunks=True)
        self.failed: list[str] = []

    def answers(self, question: Question, arm: Arm) -> list[MeasuredAnswer]:
        try:
            try:
                return super().answers(question, arm)
            except PeerLostError as e:
                if CLOSED not in str(e):
                    raise
                return super().answers(question, arm)
        except DuoError as e:
            self.failed.append(str(e))
            return []


def commands(args: argparse.Namespace) -> dict[str, tuple[list[str], str]]:
    """The servers by name: a command, and the route that says that it is ready."""
    duo = [sys.executable, "-m", "duo", "serve", "-m", args.target, "--port", "{port}"]
    found = {PLAIN: (duo, "/health"), "duo, draft": ([*duo, "-md", args.draft], "/health")}
    if args.llama_cpp_python:
        other = [args.llama_cpp_python, "-m", "llama_cpp.server", "--model", args.target, "--port", "{port}"]
        # By default a new request ends the one that is being written.
        other += ["--n_threads", str(args.threads), "--interrupt_requests", "false", "--n_ctx", str(N_CTX)]
        found["llama-cpp-python"] = (other, "/v1/models")
        found["llama-cpp-python, prompt lookup"] = ([*other, "--draft_model", "prompt-lookup-decoding"], "/v1/models")
    if args.llama_server:
        other = [args.llama_server, "-m", args.target, "--port", "{port}", "-np", "4", "-c", str(4 * N_CTX)]
        other += ["-t", str(args.threads)]
        found["llama-server"] = (other, "/health")
        found["llama-server, draft"] = ([*other, "-md", args.draft, "--spec-type", "draft-simple"], "/health")
    names = args.only.split(";") if args.only else list(found)
    return {name: found[name] for name in names}


def row(rounds: Sequence[Round], errors: Sequence[str], right: dict[Any, Any]) -> dict[str, Any]:
    """The figures of a server at one level."""
    served = [(x, x.served) for r in rounds for x in r.records if x.served is not None]
    good = [(x, s) for x, s in served if not s.refused]
    ttft = [x.timings["ttft_ms"] for x, _ in good if x.timings.get("ttft_ms") is not None]
    tpot = [s.tpot_ms for _, s in good if s.tpot_ms is not None]
    same = [s.text == right[str(x.question_id)] for x, s in good if str(x.question_id) in right]

    def percentiles(values: Sequence[float]) -> list[float] | None:
        return [float(p) for p in np.percentile(values, (50, 95))] if values else None

    return {
        "tokens_per_s": [sum(x.n_tokens for x in r.records) / r.seconds for r in rounds],
        "n_answers": len(good),
        "ttft_ms_p50_p95": percentiles(ttft),
        "tpot_ms_p50_p95": percentiles(tpot),
        "refused": len(served) - len(good),
        "errors": list(errors),
        "texts_as_duo_plain": sum(same) / len(same) if same else None,
    }


def measure(args: argparse.Namespace, out: dict[str, Any]) -> None:
    """Adds rows to out."""
    rounds: dict[tuple[str, int], list[Round]] = {}
    failed: dict[tuple[str, int], list[str]] = {}
    levels = [int(x) for x in args.clients.split(",")]
    chosen = choose(read(args.questions_file), args.questions)
    found = commands(args)
    names = list(found)
    for i in range(args.rounds):
        for name in [*names[i % len(names) :], *names[: i % len(names)]]:
            command, at = found[name]
            with started(name, command, ready=at) as child, client_of(child) as client:
                writer = Failures([client], {"max_tokens": args.n, "temperature": 0.0})
                arm = Arm(name, None, server=name)
                if name == PLAIN and not out["texts"]:
                    for q in chosen:
                        for a in writer.answers(q, arm):
                            out["texts"][str(q.question_id)] = a.served.text if a.served else None
                writer.answers(chosen[-1], arm)  # the first text after loading is slower
                for n in levels:
                    writer.failed = failed.setdefault((name, n), [])
                    asked = [chosen[k % len(chosen)] for k in range(max(args.requests, 2 * n))]
                    mine = rounds.setdefault((name, n), [])
                    mine += each_round(lambda _n, w=writer: nullcontext(w), asked, [arm], [n])
                    r = {"server": name, "clients": n, **row(mine, failed[name, n], out["texts"])}
                    r["held"] = child.held().as_json()
                    others = [x for x in out["rows"] if (x["server"], x["clients"]) != (name, n)]
                    out["rows"] = [*others, r]
                    out["notes"] = list(dict.fromkeys([*out["notes"], *writer.notes]))
                    show(r)
                    if args.out is not None:  # as far as it has come
                        args.out.write_text(json.dumps(out, indent=1) + "\n", "utf-8")


@contextmanager
def client_of(child: Child) -> Iterator[EndpointClient]:
    client = EndpointClient(parse_address(f"{child.name}={child.url}"), None, 600.0, None)
    try:
        client.meet()
        yield client
    finally:
        client.close()


def show(r: dict[str, Any]) -> None:
    ttft, tpot = r["ttft_ms_p50_p95"] or (0, 0), r["tpot_ms_p50_p95"] or (0, 0)
    speed = statistics.median(r["tokens_per_s"]) if r["tokens_per_s"] else 0.0
    times = f"first token {ttft[0]:7.0f} {ttft[1]:7.0f}  later {tpot[0]:6.1f} {tpot[1]:6.1f} ms"
    bad = f"errors {len(r['errors'])}  refused {r['refused']}"
    print(f"{r['clients']:3} {r['server']:34} {speed:7.1f} tokens/s  {times}  {bad}", flush=True)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--target", required=True)
    p.add_argument("--draft", required=True)
    p.add_argument("--clients", default="1,2,4,8,16")
    p.add_argument("--llama-cpp-python", metavar="PYTHON", help="an interpreter that has llama-cpp-python[server]")
    p.add_argument("--llama-server", metavar="FILE")
    p.add_argument("--only", metavar="NAME;NAME", help="these servers only")
    p.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="of the other servers")
    p.add_argument("-f", "--questions-file", type=Path, default=Path(__file__).parent / "prompts/completion_dev.jsonl")
    p.add_argument("--questions", type=int, default=32)
    p.add_argument("--requests", type=int, default=8, help="least number of requests of a level")
    p.add_argument("-n", type=int, default=64, help="tokens of each text")
    p.add_argument("--rounds", type=int, default=1)
    p.add_argument("--out", type=Path)
    args = p.parse_args()
    out: dict[str, Any] = {"rows": [], "notes": [], "texts": {}}
    if args.out is not None and args.out.exists():
        out = json.loads(args.out.read_text("utf-8"))
    out |= {"machine": machine(), "command": command_of(sys.argv), "settings": settings_of(vars(args))}
    out["commands"] = {**out.get("commands", {}), **{n: command_of(c) for n, (c, _) in commands(args).items()}}
    measure(args, out)


if __name__ == "__main__":
    main()
