"""Passes of a mixture of experts by width, with duo's CPU kernels and stock ones.

    python -m benchmarks.measure_mixture [--types q4_K,mxfp4,...] [--cores 0-1] [--rounds 24] [--out FILE]

The model is a Qwen3-MoE with random weights (24 layers, 64 experts, 8 of them for each token), so that each token of a
pass takes experts of its own. Both have the same file loaded and take turns, pass by pass; a figure is the median. The
limit of a pass is the time in which the same threads read, as a plain sum (read_speed.cpp), what the pass needs: the
distinct experts of its tokens and all other weights.
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
from benchmarks.run_kernels import SIDES, read_speed
from benchmarks.run_pair import cores

from duo.benchmark.bench.head import command_of, machine

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
    """Of all experts, and of the other weights."""
    sizes = [(t.name.endswith("_exps.weight"), int(t.n_bytes)) for t in gguf.GGUFReader(path).tensors]
    return sum(n for expert, n in sizes if expert), sum(n for expert, n in sizes if not expert)


def measure(path: Path, on: Sequence[int], rounds: int, work: Path) -> dict[str, Any]:
    """By kernels and width: milliseconds. By width: distinct experts of a layer; the limit in milliseconds."""
    n_experts, n_others = bytes_of(path)
    speed = read_speed(work, n_experts + n_others, on)["median"]
    probes = {side: models.probe(path, len(on), 2 * N_CONTEXT, ours=side == "duo") for side in SIDES}
    rng = np.random.default_rng(2)
    for p in probes.values():
        p.decode(rng.integers(5, 2000, N_CONTEXT).tolist(), 0, only_last=True)
    ms: dict[str, dict[int, list[float]]] = {side: {width: [] for width in WIDTHS} for side in SIDES}
    distinct: dict[int, list[float]] = {width: [] for width in WIDTHS}
    for r in range(rounds):
        for width in WIDTHS:
            tokens = rng.integers(5, 2000, width).tolist()
            for side in SIDES[:: 1 - r % 2 * 2]:
                ms[side][width].append(probes[side].decode(tokens, N_CONTEXT) / 1000)
            n_products, n, _ = probes["duo"].experts_read
            distinct[width].append(n / n_products)
    mean = {w: statistics.mean(x) for w, x in distinct.items()}
    return {
        **{side: {str(w): round(statistics.median(x), 2) for w, x in ms[side].items()} for side in SIDES},
        "distinct": {str(w): round(n, 1) for w, n in mean.items()},
        "limit": {str(w): round(1000 * (n_others + n_experts * n / N_EXPERT) / speed, 2) for w, n in mean.items()},
    }


def table(found: dict[str, dict[str, dict[str, float]]]) -> str:
    lines = [f"| experts | | {' | '.join(f'{w}' for w in WIDTHS)} |", "|" + "---|" * (2 + len(WIDTHS))]
    for kind, of in found.items():
        lines.append(
            f"| {kind} | distinct experts of {N_EXPERT} | {' | '.join(f'{n:.1f}' for n in of['distinct'].values())} |"
        )
        for side in SIDES:
            cells = [f"{ms:.1f} ({100 * of['limit'][w] / ms:.0f}%)" for w, ms in of[side].items()]
            lines.append(f"| {kind} | {side}, ms (limit / time) | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--types", default=TYPES, help=f"of the weights, of {', '.join(models.TYPES)}")
    p.add_argument("--cores", default="0-1", help="LO-HI, one thread per core")
    p.add_argument("--rounds", type=int, default=24)
    p.add_argument("--work", type=Path, default=Path("build/mixture"), help="folder for the model files")
    p.add_argument("--out", type=Path, help="JSON")
    args = p.parse_args()
    on = cores(args.cores)
    os.sched_setaffinity(0, on)
    source = made(args.work / "mixture-f16.gguf")
    found: dict[str, Any] = {}
    for kind in args.types.split(","):
        path = models.quantized(source, args.work / f"mixture-{kind}.gguf", kind)
        found[kind] = measure(path, on, args.rounds, args.work)
        print(kind, found[kind], file=sys.stderr)
    result: dict[str, Any] = {
        "command": command_of(sys.argv),
        "machine": machine(),
        "versions": models.versions(),
        "milliseconds": found,
    }
    if args.out:
        args.out.write_text(json.dumps(result, indent=1) + "\n")
    print(table(found))


if __name__ == "__main__":
    main()
