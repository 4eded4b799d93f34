"""servebench (PyPI) against duo serve: a closed loop, then an open loop beyond capacity.

    python -m benchmarks.run_servebench path/to/servebench --out FILE -m big.gguf -md small.gguf

The open loop sends requests at random times (Poisson), more of them than the server can answer: some are refused with
status 429, all others must be answered, and the time to their first token is bounded by the queue. The exit code is 1
if there is another error, or if the server's memory grew. What this script does not know goes to `duo serve`.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.servers.child import Child, started

from duo.benchmark.bench.head import command_of, machine
from duo.benchmark.bench.questions import read

REFUSED = re.compile(r"HTTP 429")
GROWTH_MB = 16.0


def run(exe: str, child: Child, folder: Path, load: list[str], n: int) -> list[dict[str, Any]]:
    """One run of servebench; the figures of its levels."""
    out, prompts = folder / "run.json", folder / "prompts.jsonl"
    found = read(Path(__file__).parent / "prompts/completion_dev.jsonl")
    prompts.write_text("".join(json.dumps({"prompt": q.turns[0]}) + "\n" for q in found), "utf-8")
    fixed = ["--endpoint", "completions", "--prompts", str(prompts), "--output-len", str(n), "--no-gpu", "--seed", "1"]
    command = [exe, "run", "--url", f"{child.url}/v1", "--model", "duo", *fixed, "--out", str(out), *load]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not out.exists():
        raise SystemExit(f"servebench failed: {done.stdout[-1000:]}{done.stderr[-1000:]}")
    return [level(x) for x in json.loads(out.read_text("utf-8"))["levels"]]


def level(x: dict[str, Any]) -> dict[str, Any]:
    errors = Counter("429" if REFUSED.match(r["error"] or "") else r["error"] for r in x["requests"] if not r["ok"])
    s = x["summary"]
    times = {name: [s[name][p] for p in ("p50", "p90", "p99", "max")] for name in ("ttft", "tpot", "e2e")}
    return {
        "load": f"{x['mode']} {x['value']:g}",
        "completed": s["completed"],
        "requests_per_s": s["request_throughput"],
        "tokens_per_s": s["output_throughput"],
        "p50_p90_p99_max": times,
        "refused": errors.pop("429", 0),
        "errors": dict(errors),
    }


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("servebench", help="the program")
    p.add_argument("--concurrency", default="1,2,4,8,16")
    p.add_argument("--beyond", type=float, default=3.0, help="rate of the open loop / best of the closed loop")
    p.add_argument("--seconds", type=float, default=20.0, help="of the open loop")
    p.add_argument("-n", type=int, default=32, help="tokens of a text")
    p.add_argument("--out", type=Path)
    args, options = p.parse_known_args()
    command = [sys.executable, "-m", "duo", "serve", "--port", "{port}", *options]
    with TemporaryDirectory() as name, started("duo serve", command) as child:
        folder = Path(name)
        closed = run(args.servebench, child, folder, ["--concurrency", args.concurrency], args.n)
        rate = args.beyond * max(x["requests_per_s"] for x in closed)

        def beyond(seconds: float) -> list[dict[str, Any]]:
            (folder / "run.json").unlink()
            return run(args.servebench, child, folder, ["--rate", f"{rate:.2f}", "--duration", f"{seconds:g}"], args.n)

        beyond(args.seconds / 4)  # a first time, for the room that hundreds of connections take
        before = child.held()
        opened = beyond(args.seconds)
        after = child.held()
    for x in (*closed, *opened):
        ttft = x["p50_p90_p99_max"]["ttft"]
        first = ", ".join(f"{1e3 * t:.0f}" for t in ttft if t is not None)
        speed = f"{x['tokens_per_s']:.1f} tokens/s, {x['requests_per_s']:.2f} requests/s"
        counts = f"{x['completed']} answers, {x['refused']} refused, errors {x['errors']}"
        print(f"{x['load']}: {speed}, {counts}, first token {first} ms (p50, p90, p99, most)", flush=True)
    print(f"memory (MB), threads, descriptors before and after the open loop: {before}, {after}")
    if args.out is not None:
        found = {"machine": machine(), "command": command_of(sys.argv), "closed": closed, "open": opened,
                 "held_before": before.as_json(), "held_after": after.as_json()}  # fmt: skip
        args.out.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    if any(x["errors"] for x in (*closed, *opened)) or after.own > before.own + GROWTH_MB:
        raise SystemExit("there were errors besides 429, or memory grew")


if __name__ == "__main__":
    main()
