"""Passes of a mixture of experts by width, with duo's CPU kernels and stock ones.

    python -m benchmarks.measure_mixture [--types q4_K,mxfp4,...] [--cores 0-1] [--rounds 24] [--out FILE]
    python -m benchmarks.measure_mixture --words 2G [--types q8_0] [--counts]

The model is a Qwen3-MoE with random weights (24 layers, 64 experts, 8 of them for each token), so that each token of a
pass takes experts of its own. With --words it is the trained mixture of tests/data, widened to that size (16 experts, 4
of them for each token), on texts that it writes: neighbouring tokens share experts, as in any text. Both kinds of
kernels have the same file loaded and take turns, pass by pass; a figure is the median. The limit of a pass is the time
in which the same threads read, as a plain sum (read_speed.cpp), what the pass needs: the distinct experts of its tokens
and all other weights. --counts measures no times, only distinct experts.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from benchmarks import models
from benchmarks.mixture_file import MixtureShape, begun
from benchmarks.mixture_words import passages, widened
from benchmarks.run_kernels import SIDES, read_speed
from benchmarks.run_pair import cores

from duo.benchmark.bench.head import command_of, machine
from duo.models.header import read_header

WIDTHS = (1, 2, 4, 8, 16)
N_LAYER, N_EMBD, N_EXPERT, N_USED, N_FF, N_HEAD, N_KV, N_HEAD_DIM = 24, 1024, 64, 8, 256, 16, 4, 64
SHAPE = MixtureShape(N_LAYER, N_EMBD, N_EXPERT, N_USED, N_FF, N_HEAD, N_KV, N_HEAD_DIM)
N_CONTEXT = 64
TYPES = "q4_K,mxfp4,iq4_xs,q3_K,q2_K,q8_0"


def _tensors(n_vocab: int) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {"token_embd.weight": (n_vocab, N_EMBD), "output_norm.weight": (N_EMBD,)}
    for i in range(N_LAYER):
        found |= {
            f"blk.{i}.attn_norm.weight": (N_EMBD,),
            f"blk.{i}.attn_q.weight": (N_HEAD * N_HEAD_DIM, N_EMBD),
            f"blk.{i}.attn_k.weight": (N_KV * N_HEAD_DIM, N_EMBD),
            f"blk.{i}.attn_v.weight": (N_KV * N_HEAD_DIM, N_EMBD),
            f"blk.{i}.attn_output.weight": (N_EMBD, N_HEAD * N_HEAD_DIM),
            f"blk.{i}.attn_q_norm.weight": (N_HEAD_DIM,),
            f"blk.{i}.attn_k_norm.weight": (N_HEAD_DIM,),
            f"blk.{i}.ffn_norm.weight": (N_EMBD,),
            f"blk.{i}.ffn_gate_inp.weight": (N_EXPERT, N_EMBD),
            f"blk.{i}.ffn_gate_exps.weight": (N_EXPERT, N_FF, N_EMBD),
            f"blk.{i}.ffn_up_exps.weight": (N_EXPERT, N_FF, N_EMBD),
            f"blk.{i}.ffn_down_exps.weight": (N_EXPERT, N_EMBD, N_FF),
        }
    return found


def made(out: Path) -> Path:
    """The model as f16, its routers as f32. A file from an earlier run is used again."""
    if out.exists():
        return out
    out.parent.mkdir(parents=True, exist_ok=True)
    part = out.with_name(out.name + ".part")
    writer, n_vocab = begun(part, SHAPE)
    rng = np.random.default_rng(1)
    for name, shape in _tensors(n_vocab).items():
        x = np.ones(shape) if len(shape) == 1 else rng.standard_normal(shape, np.float32) / shape[-1] ** 0.5
        writer.add_tensor(name, x.astype(np.float32 if len(shape) == 1 or "gate_inp" in name else np.float16))
    return models.written(writer, part, out)


def bytes_of(path: Path) -> tuple[int, int]:
    """Of all experts, and of the other weights, without MTP layers."""
    h = read_header(str(path))
    tensors = [t for t in h.tensors if t.layer is None or not h.n_mtp or t.layer < h.n_trunk]
    sizes = [(t.name.endswith("_exps.weight"), t.n_bytes) for t in tensors]
    return sum(n for expert, n in sizes if expert), sum(n for expert, n in sizes if not expert)


Rounds = list[tuple[list[int], list[int]]]  # of each: tokens before, and those of its passes


def random_rounds(n: int) -> Rounds:
    rng = np.random.default_rng(2)
    context = rng.integers(5, 2000, N_CONTEXT).tolist()
    return [(context, rng.integers(5, 2000, WIDTHS[-1]).tolist()) for _ in range(n)]


def rounds_of_words(n: int) -> Rounds:
    return [(ids[:N_CONTEXT], ids[N_CONTEXT:]) for ids in passages(n, N_CONTEXT + WIDTHS[-1])]


def measure(path: Path, on: Sequence[int], rounds: Rounds, work: Path) -> dict[str, Any]:
    """By kernels and width: milliseconds. By width: distinct experts of a layer; the limit in milliseconds."""
    n_experts, n_others = bytes_of(path)
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
    p.add_argument("--counts", action="store_true", help="no times")
    p.add_argument("--cores", default="0-1", help="LO-HI, one thread per core")
    p.add_argument("--rounds", type=int, default=24)
    p.add_argument("--work", type=Path, default=Path("build/mixture"), help="folder for the model files")
    p.add_argument("--out", type=Path, help="JSON")
    args = p.parse_args()
    on = cores(args.cores)
    os.sched_setaffinity(0, on)
    source = widened(args.words, args.work) if args.words else made(args.work / "mixture-f16.gguf")
    rounds = rounds_of_words(args.rounds) if args.words else random_rounds(args.rounds)
    stem = source.stem if args.words else "mixture"
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
