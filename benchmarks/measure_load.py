"""What a user waits for: seconds from the import, in a fresh process, to the first token of a pair of real models.

    make models
    python -m benchmarks.measure_load --rounds 5 --out FILE

The files are in the page cache: each is read once before. Each round starts every arm in a fresh process, in turn.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "tools"))

from benchmarks.run_real import DRAFT, TARGET
from real_models import MODELS  # tools/real_models.py

from duo.benchmark.bench.head import command_of, machine

# The first line of each prints the seconds until the models are loaded; the last one until the first token is there.
DUO = """
import sys, time
began = time.monotonic()
import duo
with duo.Duo(*sys.argv[2:], n_ctx=2048, draft_pack=sys.argv[1]) as d:
    print(time.monotonic() - began)
    d.generate("Write a function.", max_tokens=1)
    print(time.monotonic() - began)
"""
LLAMA_CPP = """
import sys, time
began = time.monotonic()
import llama_cpp
models = [llama_cpp.Llama(path, n_ctx=2048, verbose=False) for path in sys.argv[2:]]
print(time.monotonic() - began)
models[0]("Write a function.", max_tokens=1)
print(time.monotonic() - began)
"""


def seconds(code: str, *args: str) -> tuple[float, float]:
    done = subprocess.run([sys.executable, "-c", code, *args], stdout=subprocess.PIPE, text=True, check=True)
    loaded, first = map(float, done.stdout.split())
    return loaded, first


def main() -> None:
    p = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--out", type=Path)
    args = p.parse_args()
    target, draft = (str(MODELS[name].path) for name in (TARGET, DRAFT))
    for path in (target, draft):
        with open(path, "rb") as file:
            while file.read(1 << 24):
                pass
    arms: dict[str, tuple[str, ...]] = {
        "llama-cpp-python, target alone": (LLAMA_CPP, "", target),
        "llama-cpp-python, both models": (LLAMA_CPP, "", target, draft),
        "duo, target alone": (DUO, "auto", target),
        "duo, the pair, default options": (DUO, "auto", target, draft),
        "duo, the pair, --draft-pack off": (DUO, "off", target, draft),
    }
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in arms}
    for _ in range(args.rounds):
        for name, (code, *rest) in arms.items():
            found[name].append(seconds(code, *rest))
    print("| | loaded, s | first token, s |\n|---|---|---|")
    for name, times in found.items():
        columns = [f"{statistics.median(x):.1f} ({min(x):.1f} to {max(x):.1f})" for x in zip(*times, strict=True)]
        print(f"| {name} | {' | '.join(columns)} |")
    if args.out is not None:
        result: dict[str, Any] = {"command": command_of(sys.argv), "machine": machine(), "seconds": found}
        args.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
