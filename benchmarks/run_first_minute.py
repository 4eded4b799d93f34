"""The first minute: `duo -m X` with no other choice, beside the same target alone. What is chosen, and what it brings.

PYTHONPATH=tools:tests python -m benchmarks.run_first_minute --out FILE

Each text is a process of its own, as for a new user: `duo -m X` and `duo -m X -md none` in turn, for so many rounds,
with nothing learned before. The time is the process's own figure for the text, prompt included, loading left out. What
is chosen is read from its first lines. Targets: models of 24 layers with one MTP layer whose weights are made, so that
it is always right, or never; the demo target and Qwen2.5-Coder 1.5B (`make models`), each with its draft beside it, and
without. A row that --out has already is not measured again.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import real_models  # tools/real_models.py
from benchmarks.real_questions import chatml
from mtp_models import foreseeing  # tests/mtp_models.py
from tiny_models import tiny  # tests/tiny_models.py

from duo.benchmark.bench.head import command_of, head_of
from duo.benchmark.bench.questions import read
from duo.models.demo import demo_pair

TARGET, DRAFT = "qwen2.5-coder-1.5b-q4_k_m", "qwen2.5-coder-0.5b-q4_k_m"
EDITS = Path(__file__).parent / "prompts/edits.jsonl"
STORY = "Tell a story of a lighthouse keeper who finds a letter in a bottle."
REPEATED = "The dog saw the cat, and the cat saw the dog. " * 4 + "The dog"
N_TRUNK = 24
ARMS: dict[str, tuple[str, ...]] = {"plain": ("-md", "none"), "alone": ()}
CHOSEN = (
    (r"\+ its MTP layers", "its MTP layers"),
    (r"\+ draft (\S+)", r"the draft \1"),
    (r"guesses from n-grams \((\S+)\)", r"n-grams (\1)"),
    (r"plain decoding", "nothing"),
)
FIGURES = ("predicted_n", "predicted_per_second", "prompt_n", "draft_n", "draft_n_accepted", "passes_at_rest_n",
           "target_passes_n")  # fmt: skip
HEAD = ("target", "what is chosen", "times plain, median", "worst", "best", "after the first token", "right guesses",
        "same text")  # fmt: skip


@dataclass(frozen=True)
class Job:
    """A target in a folder of its own, and what it is asked."""

    name: str
    target: Path
    prompt: str


def jobs(folder: Path) -> Iterator[Job]:
    source = demo_pair()[1]
    made: dict[str, Callable[[Path], Path]] = {
        "MTP layer, always right": lambda to: foreseeing("hy_v3", source, to, N_TRUNK),
        "MTP layer, never right": lambda to: tiny("hy_v3", source, to, n_mtp=1, n_trunk=N_TRUNK),
    }
    for name, make in made.items():
        yield Job(name, make(_own(folder, name) / "made.gguf"), "Once upon a time there was a little town.")
    target, draft = demo_pair()
    for name, files in (
        ("demo, a draft beside it", [("", target), ("draft-", draft)]),
        ("demo, nothing", [("", target)]),
    ):
        place = _placed(folder, name, files)
        for kind, prompt in (("a story", "Once upon a time"), ("a text that repeats itself", REPEATED)):
            yield Job(f"{name}, {kind}", place, prompt)
    edit = next(iter(read(EDITS))).turns[0]
    target, draft = (real_models.MODELS[name].path for name in (TARGET, DRAFT))
    for name, files in (
        ("Qwen, a draft beside it", [("", target), ("draft-", draft)]),
        ("Qwen, nothing", [("", target)]),
    ):
        place = _placed(folder, name, files)
        for kind, prompt in (("a story", STORY), ("a file to be edited", edit)):
            yield Job(f"{name}, {kind}", place, chatml(prompt))


def _placed(folder: Path, name: str, files: list[tuple[str, Path]]) -> Path:
    """Links with these prefixes in a folder of their own. Returns the first one."""
    place = _own(folder, name)
    links = [place / f"{prefix}{path.name}" for prefix, path in files]
    for link, (_, path) in zip(links, files, strict=True):
        link.symlink_to(path.resolve())
    return links[0]


def _own(folder: Path, name: str) -> Path:
    place = folder / re.sub(r"\W+", "-", name)
    place.mkdir()
    return place


def run(job: Job, arm: str, n: int, environment: dict[str, str]) -> dict[str, Any]:
    """Raises SystemExit: duo failed."""
    command = [sys.executable, "-m", "duo", "-m", str(job.target), "-p", job.prompt, "-n", str(n), "--temp", "0",
               "-c", "4096", "--json", *ARMS[arm]]  # fmt: skip
    began = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment}, check=False)
    if done.returncode:
        raise SystemExit(f"{job.name}, {arm}: {done.stderr}")
    answer = json.loads(done.stdout)
    t = answer["timings"]
    lines = [line for line in done.stderr.splitlines() if line.startswith("duo: ")]
    times = {"ms": t["total_ms"], "ms_of_process": 1000 * (time.monotonic() - began), "load": os.getloadavg()[0]}
    return {"text": answer["text"], "lines": lines, **times, **{name: t.get(name, 0) for name in FIGURES}}


def chosen(lines: list[str]) -> str:
    said = " ".join(lines)
    return next((found.expand(name) for pattern, name in CHOSEN if (found := re.search(pattern, said))), "?")


def summary(name: str, rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """ratios: how many times as fast as the target alone, round by round."""
    last = rounds[-1]["alone"]
    return {
        "name": name,
        "chosen": chosen(last["lines"]),
        "ratios": [r["plain"]["ms"] / r["alone"]["ms"] for r in rounds],
        "after_the_first_token": [
            r["alone"]["predicted_per_second"] / r["plain"]["predicted_per_second"] for r in rounds
        ],
        "plain_per_second": statistics.median(r["plain"]["predicted_per_second"] for r in rounds),
        "right": [sum(r["alone"][k] for r in rounds) for k in ("draft_n_accepted", "draft_n")],
        "equal": all(r["plain"]["text"] == r["alone"]["text"] for r in rounds),
        "load": [
            min(x["load"] for r in rounds for x in r.values()),
            max(x["load"] for r in rounds for x in r.values()),
        ],
        "lines": last["lines"],
        "tokens": [last["prompt_n"], last["predicted_n"]],
    }


def table(rows: list[dict[str, Any]]) -> Iterator[str]:
    yield f"| {' | '.join(HEAD)} |"
    yield "|---" * len(HEAD) + "|"
    for r in rows:
        x, right = r["ratios"], r["right"]
        yield (
            f"| {r['name']} | {r['chosen']} | {statistics.median(x):.2f} | {min(x):.2f} | {max(x):.2f} "
            f"| {statistics.median(r['after_the_first_token']):.2f} | {right[0]} of {right[1]} "
            f"| {'yes' if r['equal'] else 'NO'} |"
        )


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("-n", type=int, default=128, help="tokens of a text")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--only", default="", help="targets with this in their name")
    p.add_argument("--out", type=Path, required=True)
    args = p.parse_args()
    found = json.loads(args.out.read_text("utf-8")) if args.out.exists() else {"rows": []}
    rows: list[dict[str, Any]] = found["rows"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # Kernels are raced once and no pair has learned anything; no list of pairs but duo's own.
        environment = {"DUO_PROFILES": "off", "XDG_CACHE_HOME": f"{name}/cache", "XDG_CONFIG_HOME": f"{name}/config",
                       "HF_HUB_CACHE": f"{name}/hub"}  # fmt: skip
        done = {row["name"] for row in rows}
        for job in (j for j in jobs(folder) if args.only in j.name and j.name not in done):
            run(job, "plain", 1, environment)
            order = list(ARMS)
            rounds = [
                {arm: run(job, arm, args.n, environment) for arm in order[:: (-1) ** i]} for i in range(args.rounds)
            ]
            rows.append({**summary(job.name, rounds), "command": command_of(sys.argv), "rounds": args.rounds})
            print(*table(rows[-1:]), sep="\n", file=sys.stderr)
            head = {k: v for k, v in head_of([], "", {}).items() if k not in ("settings", "command")}
            args.out.write_text(json.dumps({**head, "rows": rows}, indent=1) + "\n", "utf-8")
    print("\n".join(table(rows)))


if __name__ == "__main__":
    main()
