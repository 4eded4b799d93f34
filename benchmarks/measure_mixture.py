"""Passes of a mixture of experts by width, with duo's CPU kernels and stock ones.

    python -m benchmarks.measure_mixture [--types q4_K,mxfp4,...] [--cores 0-1] [--rounds 24] [--out FILE]
    python -m benchmarks.measure_mixture --words 2G [--types q8_0] [--counts]
    python -m benchmarks.measure_mixture --experts 256 --layers 8 --distinct 39 --types q4_K

The model is a Qwen3-MoE with random weights (24 layers, 64 experts, 8 of them for each token), so that each token of a
pass takes experts of its own. --distinct: the tokens of a pass are alike, so that 8 of them have so many distinct
experts (of a published model with 256 experts they have 39; alone they would have 57). With --words it is the trained
mixture of tests/data, widened to that size (16 experts, 4 of them for each token), on texts that it writes:
neighbouring tokens share experts, as in any text. Both kinds of kernels have the same file loaded and take turns, pass
by pass; a figure is the median. The limit of a pass is the time in which the same threads read, as a plain sum
(read_speed.cpp), what the pass needs: the distinct experts of its tokens and all other weights. --counts measures no
times, only distinct experts.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from benchmarks import models
from benchmarks.mixture_file import MixtureShape
from benchmarks.mixture_words import passages, widened
from benchmarks.random_mixture import likeness, made, neighbours
from benchmarks.run_kernels import SIDES, read_speed
from benchmarks.run_pair import cores

from duo.benchmark.bench.head import command_of, machine
from duo.benchmark.doctor import bytes_read
from duo.models.header import read_header

WIDTHS = (1, 2, 4, 8, 16)
SHAPE = MixtureShape(n_layer=24, n_embd=1024, n_expert=64, n_used=8, n_ff=256, n_head=16, n_kv=4, n_head_dim=64)
N_ALIKE = 8  # tokens of --distinct
N_CONTEXT = 64
TYPES = "q4_K,mxfp4,iq4_xs,q3_K,q2_K,q8_0"


Rounds = list[tuple[list[int], list[int]]]  # of each: tokens before, and those of its passes


def random_rounds(n: int) -> Rounds:
    rng = np.random.default_rng(2)
    context = rng.integers(5, 2000, N_CONTEXT).tolist()
    return [(context, rng.integers(5, 2000, WIDTHS[-1]).tolist()) for _ in range(n)]


def parted(texts: list[list[int]]) -> Rounds:
    return [(ids[:N_CONTEXT], ids[N_CONTEXT:]) for ids in texts]


def random_source(args: argparse.Namespace) -> tuple[Path, Rounds]:
    """The model with random weights, and what its passes read."""
    shape = replace(SHAPE, n_expert=args.experts, n_layer=args.layers)
    name = "mixture" if shape == SHAPE else f"mixture-{shape.n_layer}x{shape.n_expert}"
    if args.distinct is None:
        return made(args.work / f"{name}-f16.gguf", shape), random_rounds(args.rounds)
    path = args.work / f"{name}-{args.distinct:g}-f16.gguf"
    texts = neighbours(args.rounds, N_CONTEXT + WIDTHS[-1])
    return made(path, shape, likeness(args.distinct, N_ALIKE, shape)), parted(texts)


def measure(path: Path, on: Sequence[int], rounds: Rounds, work: Path) -> dict[str, Any]:
    """By kernels and width: milliseconds. By width: distinct experts of a layer; the limit in milliseconds."""
    n_experts, n_others = bytes_read(read_header(str(path)))
    speed = read_speed(work, n_experts + n_others, on)["median"]
    probes = {side: models.probe(path, len(on), 2 * N_CONTEXT, ours=side == "duo") for side in SIDES}
    ms: dict[str, dict[int, list[float]]] = {side: {width: [] for width in WIDTHS} for side in SIDES}
    before: list[int] = []
    for r, (context, tokens) in enumerate(rounds):
        if context != before:
            for p in probes.values():
                p.decode(context, 0, only_last=True)
        before = context
        for width in WIDTHS:
            for side in SIDES[:: 1 - r % 2 * 2]:
                ms[side][width].append(probes[side].decode(tokens[:width], N_CONTEXT) / 1000)
    mean = distinct_experts(probes["duo"], rounds)
    n_expert = n_experts_of(path)
    return {
        **{side: {str(w): round(statistics.median(x), 2) for w, x in ms[side].items()} for side in SIDES},
        "distinct": {str(w): round(n, 1) for w, n in mean.items()},
        "limit": {str(w): round(1000 * (n_others + n_experts * n / n_expert) / speed, 2) for w, n in mean.items()},
    }


def distinct_experts(probe: Any, rounds: Rounds) -> dict[int, float]:
    """Of a layer, by width: the mean."""
    found: dict[int, list[float]] = {width: [] for width in WIDTHS}
    for context, tokens in rounds:
        probe.decode(context, 0, only_last=True)
        for width in WIDTHS:
            probe.decode(tokens[:width], N_CONTEXT)
            n_products, n, _ = probe.experts_read
            found[width].append(n / n_products)
    return {w: statistics.mean(x) for w, x in found.items()}


def counted(path: Path, on: Sequence[int], rounds: Rounds) -> dict[str, float]:
    probe = models.probe(path, len(on), 2 * N_CONTEXT, ours=True)
    return {str(w): round(n, 1) for w, n in distinct_experts(probe, rounds).items()}


def n_experts_of(path: Path) -> int:
    return next(int(t.shape[2]) for t in gguf.GGUFReader(path).tensors if t.name.endswith("_exps.weight"))


def table(found: dict[str, dict[str, dict[str, float]]], n_expert: int) -> str:
    lines = [f"| experts | | {' | '.join(f'{w}' for w in WIDTHS)} |", "|" + "---|" * (2 + len(WIDTHS))]
    for kind, of in found.items():
        lines.append(
            f"| {kind} | distinct experts of {n_expert} | {' | '.join(f'{n:.1f}' for n in of['distinct'].values())} |"
        )
        for side in SIDES if "limit" in of else ():
            cells = [f"{ms:.1f} ({100 * of['limit'][w] / ms:.0f}%)" for w, ms in of[side].items()]
            lines.append(f"| {kind} | {side}, ms (limit / time) | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--types", help=f"of the weights, of {', '.join(models.TYPES)}; by default {TYPES}, or q8_0")
    p.add_argument("--words", metavar="SIZE", help="the trained mixture, widened to 600M, 2G, ...")
    p.add_argument("--experts", type=int, default=SHAPE.n_expert, help="of a layer")
    p.add_argument("--layers", type=int, default=SHAPE.n_layer)
    p.add_argument("--distinct", type=float, metavar="N", help=f"distinct experts of {N_ALIKE} tokens")
    p.add_argument("--counts", action="store_true", help="no times")
    p.add_argument("--cores", default="0-1", help="LO-HI, one thread per core")
    p.add_argument("--rounds", type=int, default=24)
    p.add_argument("--work", type=Path, default=Path("build/mixture"), help="folder for the model files")
    p.add_argument("--out", type=Path, help="JSON")
    args = p.parse_args()
    on = cores(args.cores)
    os.sched_setaffinity(0, on)
    if args.words:
        source = widened(args.words, args.work)
        rounds = parted(passages(args.rounds, N_CONTEXT + WIDTHS[-1]))
    else:
        source, rounds = random_source(args)
    stem = source.stem.removesuffix("-f16")
    found: dict[str, Any] = {}
    for kind in (args.types or ("q8_0" if args.words else TYPES)).split(","):
        is_own = args.words and kind == "q8_0"
        path = source if is_own else models.quantized(source, args.work / f"{stem}-{kind}.gguf", kind)
        found[kind] = {"distinct": counted(path, on, rounds)} if args.counts else measure(path, on, rounds, args.work)
        print(kind, found[kind], file=sys.stderr)
    result: dict[str, Any] = {
        "command": command_of(sys.argv),
        "machine": machine(),
        "versions": models.versions(),
        "milliseconds": found,
        "words": args.words,
    }
    if args.out:
        args.out.write_text(json.dumps(result, indent=1) + "\n")
    print(table(found, n_experts_of(source)))


if __name__ == "__main__":
    main()
