"""Compares passes of duo's CPU kernels with stock ones, by width and weight type, and with the memory's read speed.

    python benchmarks/run_kernels.py --work build/kernels --cores 0 --out benchmarks/results/kernels-1core.json
    python benchmarks/run_kernels.py --chart benchmarks/results/kernels-1core.json --svg docs/kernels.svg

Both kernels have the same file loaded and take turns, pass by pass, in alternating order, so that a noisy moment
affects both alike. A ratio is the median of the ratios of neighbouring passes. Width 1 is measured as duo uses it (with
stock attention two rows, one of them discarded, if that makes the bits independent of the width). The limit is the time
in which the same threads read all weights of the file once, as a plain sum (read_speed.cpp). Types that are already in
the --out file stay there if machine, versions and cores are the same, so you can measure one type at a time.
DUO_CPU_ISA selects duo's instruction set (not that of stock). The prefetch distance is the one that the race finds.
A hash of each width is that of the logits of the same 16 tokens, evaluated so many at a time: equal hashes, equal bits.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks import models
from benchmarks.run_pair import cores

from duo import _core
from duo.benchmark.bench.head import command_of, machine
from duo.models.demo import demo_pair
from duo.placement import kernels

WIDTHS = (1, 2, 3, 4, 5, 6, 8, 12, 16)
PROMPTS = (64, 512)
N_CONTEXT = 64  # tokens before the passes of WIDTHS
SIDES = ("stock", "duo")
TYPES = (
    "q8_0,q4_K_M,q4_0,q4_1,q5_0,q5_1,q5_K_M,q6_K,bf16,f16,iq4_nl,iq4_xs,mxfp4,q2_K,q3_K,"
    "iq2_xxs,iq2_xs,iq2_s,iq3_xxs,iq3_s,iq1_s,iq1_m,tq1_0,tq2_0"
)
TEXT = "It was so beautiful out in the country. The wheat fields were golden, the oats were green, and the hay stood. "

Samples = dict[str, dict[int, list[float]]]  # side -> width -> milliseconds


def read_speed(work: Path, n_bytes: int, on: Sequence[int], passes: int = 15) -> dict[str, float]:
    """Bytes per second of a program that only reads."""
    source, program = Path(__file__).parent / "read_speed.cpp", work / "read_speed"
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        flags = ["-std=c++20", "-O3", "-march=native", "-pthread"]
        subprocess.run(["g++", *flags, str(source), "-o", str(program)], check=True)
    command = [str(program), str(n_bytes), str(passes), *map(str, on)]
    best, median = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return {"best": float(best), "median": float(median)}


class Probes:
    """Both kernels with one file: loaded at once, or each in its turn."""

    def __init__(self, path: Path, n_threads: int, together: bool) -> None:
        self.path, self.n_threads = path, n_threads
        self.about: dict[str, Any] = {}
        self.tokens: list[int] = []
        self.hashes: dict[str, dict[int, str]] = {}  # by kernels and width
        self.loaded = {side: self.load(side) for side in SIDES} if together else {}

    def load(self, side: str) -> _core.Probe:
        p = models.probe(self.path, self.n_threads, max(PROMPTS), ours=side == "duo")
        text = p.tokenize(TEXT)
        self.tokens = (text * (1 + max(PROMPTS) // len(text)))[: max(PROMPTS)]
        if side == "duo":
            self.about = {key: getattr(p, key) for key in ("same_bits", "n_duo_products", "n_cpu_products")}
        self.milliseconds(p, N_CONTEXT)
        for width in WIDTHS:
            self.milliseconds(p, width)
        if side not in self.hashes:
            self.hashes[side] = {width: self.hash_of(p, width) for width in WIDTHS}
        return p

    def hash_of(self, p: _core.Probe, width: int) -> str:
        """Of the logits of the last tokens of WIDTHS' passes, `width` at a time."""
        found, end = hashlib.blake2b(digest_size=4), N_CONTEXT + max(WIDTHS)
        for pos in range(N_CONTEXT, end, width):
            p.decode(self.tokens[pos : min(pos + width, end)], pos)
            found.update(p.logits().tobytes())
        return found.hexdigest()

    def milliseconds(self, p: _core.Probe, width: int) -> float:
        # The tokens are always the same, so a prompt does not change the context of the other passes.
        pos = 0 if width in PROMPTS else N_CONTEXT
        return p.decode(self.tokens[pos : pos + width], pos) / 1000

    def round(self, r: int, widths: Sequence[int], into: Samples) -> None:
        if self.loaded:
            turns = [(side, width) for i, width in enumerate(widths) for side in SIDES[:: 1 - (r + i) % 2 * 2]]
            for side, width in turns:
                into[side][width].append(self.milliseconds(self.loaded[side], width))
            return
        for side in SIDES[:: 1 - r % 2 * 2]:
            p = self.load(side)
            for width in widths:
                into[side][width].append(self.milliseconds(p, width))
            del p


def spread(values: Sequence[float]) -> dict[str, float]:
    low, median, high = statistics.quantiles(values, method="inclusive") if len(values) > 1 else [values[0]] * 3
    return {"median": round(median, 5), "low": round(low, 5), "high": round(high, 5), "best": round(min(values), 5)}


def measure(type: str, args: argparse.Namespace, on: list[int]) -> dict[str, Any]:
    shape = (args.n_embd, args.n_ff, args.n_layer)
    wide = models.widened(args.source, args.work, shape, "f16")
    path = wide
    if type != "f16":
        path = models.quantized(wide, args.work / f"{wide.stem.removesuffix('f16')}{type}.gguf", type)
    n_bytes = models.bytes_of_pass(path)
    weight_types = [t for t in _core.cpu_types(os.fsencode(path), 0) if t in _core.kernel_types()]
    aheads = {t: s.ahead for t in weight_types if (s := kernels.speed_of(t, len(on))) is not None}
    kernels.read_ahead(weight_types, len(on))
    reads = [read_speed(args.work, n_bytes, on)]
    probes = Probes(path, len(on), not args.one_at_a_time)
    samples: Samples = {side: {width: [] for width in (*WIDTHS, *PROMPTS)} for side in SIDES}
    start = time.monotonic()
    for r in range(args.rounds):
        prompts = [n for n, every in zip(PROMPTS, (4, 8), strict=True) if r % every == 0 and n <= args.longest]
        probes.round(r, (*WIDTHS, *prompts), samples)
        print(f"{type}: round {r + 1}/{args.rounds}, {time.monotonic() - start:.0f} s", file=sys.stderr)
    reads.append(read_speed(args.work, n_bytes, on))

    read = {"best": max(x["best"] for x in reads), "median": statistics.mean(x["median"] for x in reads)}
    limit = 1000 * n_bytes / read["median"]
    widths: dict[str, Any] = {}
    for width in (n for n in (*WIDTHS, *PROMPTS) if samples["duo"][n]):
        row: dict[str, Any] = {"n": len(samples["duo"][width])}
        for side in SIDES:
            row[side] = spread(samples[side][width])
            row[side]["v"] = round(row[side]["median"] / statistics.median(samples[side][1]), 4)
            if width in WIDTHS:
                row[side]["logits"] = probes.hashes[side][width]
            if width <= 8:
                row[side]["share_of_limit"] = round(limit / row[side]["median"], 4)
        row["stock_to_duo"] = spread([x / y for x, y in zip(*(samples[side][width] for side in SIDES), strict=True)])
        del row["stock_to_duo"]["best"]
        widths[str(width)] = row
    return {
        "command": command_of(sys.argv),
        "rounds": args.rounds,
        "pass_bytes": n_bytes,
        "read_ahead": aheads,
        **probes.about,
        "read_bytes_per_s": read,
        "limit_ms": round(limit, 4),
        "widths": widths,
    }


def table(types: dict[str, Any]) -> str:
    wide = [str(width) for width in WIDTHS[1:]]
    heads = ["weights", "kernels", "t(1), ms", "share of limit", *(f"v({n})" for n in wide)]
    heads += [f"prompt {n}, tokens/s" for n in PROMPTS]
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for name, found in types.items():
        rows = found["widths"]
        for side in SIDES:
            one = rows["1"][side]
            speeds = [f"{1000 * n / rows[str(n)][side]['median']:.0f}" if str(n) in rows else "" for n in PROMPTS]
            cells = [f"{one['median']:.2f}", f"{100 * one['share_of_limit']:.0f}%"]
            cells += [f"{rows[n][side]['v']:.2f}" for n in wide] + speeds
            lines.append(f"| {name} | {side} | {' | '.join(cells)} |")
    columns = [str(n) for n in (*WIDTHS, *PROMPTS)]
    lines += ["", f"| stock / duo, by width | {' | '.join(columns)} |", "|" + "---|" * (1 + len(columns))]
    for name, found in types.items():
        rows = found["widths"]
        cells = [f"{rows[n]['stock_to_duo']['median']:.2f}" if n in rows else "" for n in columns]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    hashed = {name: found["widths"] for name, found in types.items() if "logits" in found["widths"]["1"]["duo"]}
    if hashed:
        lines += ["", f"| hash of the logits | kernels | {' | '.join(map(str, WIDTHS))} |"]
        lines.append("|" + "---|" * (2 + len(WIDTHS)))
    for name, rows in hashed.items():
        for side in SIDES:
            lines.append(f"| {name} | {side} | {' | '.join(rows[str(n)][side]['logits'] for n in WIDTHS)} |")
    return "\n".join(lines)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--source", type=Path, default=demo_pair()[0], help="small model to widen")
    p.add_argument("--n-embd", type=int, default=1280, help="K-quants need multiples of 256, also for --n-ff")
    p.add_argument("--n-ff", type=int, default=3840)
    p.add_argument("--n-layer", type=int, default=26)
    p.add_argument("--types", default=TYPES, help=f"of {', '.join(models.TYPES)}")
    p.add_argument("--cores", default="0", help="LO-HI, one thread per core")
    p.add_argument("--rounds", type=int, default=16, help="every 4th round has a prompt of 64 tokens, every 8th of 512")
    p.add_argument("--longest", type=int, default=max(PROMPTS), help="longest prompt, tokens")
    p.add_argument("--one-at-a-time", action="store_true", help="load the kernels in turn: half the memory, slower")
    p.add_argument("--work", type=Path, default=Path("build/kernels"), help="folder for the model files")
    p.add_argument("--out", type=Path, help="JSON")
    p.add_argument("--quick", action="store_true", help="a model of a few MB, 3 rounds, the first type only")
    p.add_argument("--chart", type=Path, help="only draw this JSON; measure nothing")
    p.add_argument("--svg", type=Path, help="output file of --chart")
    args = p.parse_args()
    if args.chart:
        from benchmarks.chart import draw

        found = json.loads(args.chart.read_text())
        print(table(found["types"]))
        if args.svg:
            draw(found, args.svg)
        return
    if args.quick:
        args.n_embd, args.n_ff, args.n_layer, args.rounds = 512, 1024, 4, 3
        args.types = args.types.split(",")[0]
    on = cores(args.cores)
    os.sched_setaffinity(0, on)
    args.work.mkdir(parents=True, exist_ok=True)

    found = {"machine": machine(), **models.versions(), "cores": args.cores}
    found["shape"] = {"n_embd": args.n_embd, "n_ff": args.n_ff, "n_layer": args.n_layer}
    types: dict[str, Any] = {}
    if args.out and args.out.exists():
        old = json.loads(args.out.read_text())
        types = old.pop("types")
        if old != found:
            types = {}
    for type in args.types.split(","):
        types[type] = measure(type, args, on)
        if args.out:
            args.out.write_text(json.dumps({**found, "types": types}, indent=1) + "\n")
    print(table(types))


if __name__ == "__main__":
    main()
