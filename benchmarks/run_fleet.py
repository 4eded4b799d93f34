"""One draft host for a fleet: how fast its clients write when 1, 2 or 4 of them use it.

    python -m benchmarks.run_fleet --target target-250M.gguf --draft draft-60M.gguf --out FILE

Each client is a process with its own target. All of them share the cores of --cores and write all the time, so that a
client has the same share of them however many use the draft: it stands for a machine of its own. The draft host has
--core-draft for itself. In each window some clients write with the host's draft and the others plainly; tokens are
counted by the time at which they arrive. The texts are greedy, and must be those of plain decoding.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import duo
from duo.benchmark.bench.head import command_of, machine, settings_of

BEGIN_S = 2.0  # before each window, so that everybody is in the middle of a text
SUMS = ("draft_n", "draft_n_accepted", "draft_hit_n", "target_passes_n", "predicted_n", "predicted_ms",
        "verify_wait_ms", "network_sent_bytes", "network_received_bytes", "network_lost_n")  # fmt: skip


def client(given: dict[str, Any]) -> None:
    """A process of the fleet. Reads a line for each window and answers with a line."""
    prompts, order = given["prompts"], count(given["first"])
    options = {"max_tokens": given["n"], "temperature": 0, "ignore_eos": True}
    with duo.Duo(given["target"], draft_host=given["host"], require_draft=True, n_ctx=512, n_threads=1) as d:
        d.generate(prompts[0], max_tokens=8)
        print("ready", flush=True)
        for line in sys.stdin:
            window = json.loads(line)
            since, until, n_tokens = window["since"], window["until"], 0
            sums, texts = dict.fromkeys(SUMS, 0.0), []
            while time.monotonic() < until:
                i = next(order) % len(prompts)
                with d.stream(prompts[i], **options, mode=window["mode"]) as s:
                    for chunk in s:
                        now = time.monotonic()
                        n_tokens += chunk.token is not None and since <= now < until
                        if now >= until:
                            break
                    else:
                        texts.append([i, s.result.text])
                        for name in SUMS:
                            sums[name] += s.result.timings.get(name, 0)
            print(json.dumps({"tokens": n_tokens, "sums": sums, "texts": texts}), flush=True)


@contextmanager
def child(core: str, *args: str) -> Iterator[subprocess.Popen[str]]:
    env = {**os.environ, "DUO_PROFILES": "off"}
    command = ["taskset", "-c", core, sys.executable, "-m", *args]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env) as p:
        try:
            yield p
        finally:
            p.terminate()


def said(p: subprocess.Popen[str]) -> str:
    assert p.stdout is not None
    line = p.stdout.readline()
    if not line:
        raise SystemExit(f"a process has ended: {p.args}")
    return line


def window(clients: list[subprocess.Popen[str]], n_with: int, seconds: float) -> list[dict[str, Any]]:
    """What each client has written; the first n_with have a draft."""
    since = time.monotonic() + BEGIN_S
    for i, p in enumerate(clients):
        assert p.stdin is not None
        mode = "async" if i < n_with else "plain"
        p.stdin.write(json.dumps({"mode": mode, "since": since, "until": since + seconds}) + "\n")
        p.stdin.flush()
    return [json.loads(said(p)) for p in clients]


def row(n_with: int, windows: list[list[dict[str, Any]]], seconds: float, right: dict[int, str]) -> dict[str, Any]:
    """Medians over windows of one number of clients with the draft."""
    speeds = [[c["tokens"] / seconds for c in w] for w in windows]
    found: dict[str, Any] = {"with_draft": n_with, "without": len(windows[0]) - n_with}
    found["tokens_per_s_of_all"] = statistics.median(map(sum, speeds))
    if n_with < len(windows[0]):
        found["tokens_per_s_without"] = statistics.median(statistics.mean(s[n_with:]) for s in speeds)
    texts = [text for w in windows for c in w for text in c["texts"]]
    found["texts"], found["equal_texts"] = len(texts), sum(right[i] == t for i, t in texts)
    if n_with:
        found["tokens_per_s_with"] = statistics.median(statistics.mean(s[:n_with]) for s in speeds)
        found["least_and_most_with"] = [min(min(s[:n_with]) for s in speeds), max(max(s[:n_with]) for s in speeds)]
        found["tokens_per_s_of_those"] = statistics.median(sum(s[:n_with]) for s in speeds)
        t = {name: sum(c["sums"][name] for w in windows for c in w[:n_with]) for name in SUMS}
        found |= {
            "acceptance": t["draft_n_accepted"] / max(1, t["draft_n"]),
            "tokens_per_pass": t["predicted_n"] / max(1, t["target_passes_n"]),
            "hits": t["draft_hit_n"] / max(1, t["target_passes_n"]),
            "share_of_time_waiting": t["verify_wait_ms"] / max(1, t["predicted_ms"]),
            "kb_per_token": (t["network_sent_bytes"] + t["network_received_bytes"]) / 1e3 / max(1, t["predicted_n"]),
            "lost": t["network_lost_n"],
        }
    return found


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--client", help=argparse.SUPPRESS)
    p.add_argument("--target", type=Path)
    p.add_argument("--draft", type=Path)
    p.add_argument("--cores", default="0", help="of all clients together")
    p.add_argument("--core-draft", default="1")
    p.add_argument("--clients", default="1,2,4", help="how many use the draft; the largest number is that of all")
    p.add_argument("--parallel", type=int, help="places of the host; default: as many as clients")
    p.add_argument("--prompts", type=Path, default=Path(__file__).parent / "prompts/completion_dev.jsonl")
    p.add_argument("--seconds", type=float, default=10.0, help="of a window")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("-n", type=int, default=48, help="tokens of a text")
    p.add_argument("--out", type=Path)
    args = p.parse_args()
    if args.client:
        client(json.loads(args.client))
        return
    numbers = [int(x) for x in args.clients.split(",")]
    n_all = max(numbers)
    prompts = [json.loads(x)["turns"][0] for x in args.prompts.read_text("utf-8").splitlines()[::5]]
    with duo.Duo(args.target, n_ctx=512) as d:
        plain: dict[str, Any] = {"max_tokens": args.n, "temperature": 0, "ignore_eos": True, "mode": "plain"}
        right = {i: d.generate(prompt, **plain).text for i, prompt in enumerate(prompts)}
    with ExitStack() as stack:
        options = ["--parallel", str(args.parallel or n_all), "-td", "1", "-cd", str(512 * n_all)]
        host = stack.enter_context(
            child(args.core_draft, "duo", "draft-host", "-md", str(args.draft), "--listen", "127.0.0.1:0", *options)
        )
        address = said(host).split(" on ")[1].split(" ")[0]
        given = {"target": str(args.target), "host": address, "prompts": prompts, "n": args.n}
        clients = []
        for i in range(n_all):
            about = json.dumps({**given, "first": i * len(prompts) // n_all})
            clients.append(stack.enter_context(child(args.cores, "benchmarks.run_fleet", "--client", about)))
        for c in clients:
            said(c)
        window(clients, n_all, 3.0)  # the planners learn what passes, steps and the round trip cost
        found: dict[int, list[list[dict[str, Any]]]] = {n: [] for n in (0, *numbers)}
        for r in range(args.rounds):
            for n in list(found)[r % len(found) :] + list(found)[: r % len(found)]:
                found[n].append(window(clients, n, args.seconds))
                print(f"round {r + 1}, {n} with the draft", file=sys.stderr, flush=True)
    rows = [row(n, windows, args.seconds, right) for n, windows in found.items()]
    print("| with the draft | tokens/s of each with it | of each without | of all | accepted | tokens/pass | hits |"
          " waits |\n" + "|---" * 8 + "|")  # fmt: skip
    for x in rows:
        cells = [f"{x[k]:.1f}" if k in x else "" for k in ("tokens_per_s_with", "tokens_per_s_without")]
        shares = [f"{x[k]:.0%}" if k in x else "" for k in ("acceptance", "hits", "share_of_time_waiting")]
        print(f"| {x['with_draft']} | {cells[0]} | {cells[1]} | {x['tokens_per_s_of_all']:.1f} | {shares[0]} "
              f"| {x.get('tokens_per_pass', 1):.2f} | {shares[1]} | {shares[2]} |")  # fmt: skip
    print("equal texts: " + ", ".join(f"{x['equal_texts']} of {x['texts']}" for x in rows))
    if args.out is not None:
        settings = settings_of({k: v for k, v in vars(args).items() if k not in ("client", "target", "draft", "out")})
        head = {"machine": machine(), "command": command_of(["python", *sys.argv]), "target": args.target.name,
                "draft": args.draft.name, "settings": settings}  # fmt: skip
        args.out.write_text(json.dumps({**head, "rows": rows}, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
