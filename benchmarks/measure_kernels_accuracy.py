"""How far duo's CPU kernels and stock ones are from exact arithmetic: next-token distributions of whole models.

    python benchmarks/measure_kernels_accuracy.py --work build/kernels --out benchmarks/results/kernels-accuracy.json

The script quantises an F32 file of the demo target and one of Gaussian weights to every weight type, and compares them
with two references, both F32 with stock kernels. `same weights`: the quantised file converted back to F32, so any
difference comes from the kernels, which round the inputs of a product. `F32 weights`: the original. KL is the
divergence of the kernels' distribution from the reference, in nats. The text is held-out openings in the demo pair's
domain, in windows of 256 tokens. K-quants need 256 columns, so the demo target is padded for them; its distribution
stays the same.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks import models
from benchmarks.run_pair import cores

from duo.benchmark.bench.head import command_of, machine
from duo.benchmark.doctor import log_softmax
from duo.models.demo import demo_pair

WINDOW = 256
PADDED = (512, 1024)
TYPES = "q8_0,q4_0,q4_1,q5_0,q5_1,iq4_nl,iq4_xs,mxfp4,q2_K,q3_K,q4_K,q5_K,q6_K,bf16,f16"

Rows = npt.NDArray[np.float32]  # log probabilities: position, token


class Text:
    def __init__(self, text: str, n_tokens: int) -> None:
        self.text, self.n_tokens = text, n_tokens
        self.tokens: list[int] = []

    def log_probabilities(self, path: Path, ours: bool, width: int, n_threads: int) -> Rows:
        """Log probabilities of the next token at every position, evaluated `width` tokens at a time."""
        p = models.probe(path, n_threads, WINDOW, ours)
        if not self.tokens:
            tokens = p.tokenize(self.text)[: self.n_tokens]
            self.tokens = tokens[: len(tokens) // WINDOW * WINDOW]
        rows = []
        for start in range(0, len(self.tokens), WINDOW):
            for pos in range(0, WINDOW, width):
                p.decode(self.tokens[start + pos : start + min(pos + width, WINDOW)], pos)
                rows.append(log_softmax(p.logits()).astype(np.float32))
        return np.concatenate(rows)

    def perplexity(self, rows: Rows) -> float:
        at = np.array([i for i in range(len(self.tokens) - 1) if (i + 1) % WINDOW])
        return math.exp(-float(rows[at, np.array(self.tokens)[at + 1]].mean(dtype=np.float64)))


def divergence(reference: Rows, rows: Rows) -> dict[str, float]:
    wanted = reference.astype(np.float64)
    kl = (np.exp(wanted) * (wanted - rows)).sum(axis=1)
    same = float((reference.argmax(axis=1) == rows.argmax(axis=1)).mean())
    return {"mean_kl": float(kl.mean()), "p99_kl": float(np.quantile(kl, 0.99)), "same_top": same}


def sides(text: Text, source: Path, type: str, original: Rows, args: argparse.Namespace) -> dict[str, Any]:
    """Compares both kernels, on the file of this type, with both references."""
    n_threads = len(cores(args.cores))
    path = models.quantized(source, args.work / f"{source.stem}-{type}.gguf", type)
    back = models.quantized(path, args.work / f"{path.stem}-back.gguf", "f32")
    references = {"F32 weights": original, "same weights": text.log_probabilities(back, False, args.width, n_threads)}
    found: dict[str, Any] = {"perplexity of the same weights in F32": text.perplexity(references["same weights"])}
    for side in ("stock", "duo"):
        rows = text.log_probabilities(path, side == "duo", args.width, n_threads)
        found[side] = {name: divergence(reference, rows) for name, reference in references.items()}
        found[side]["perplexity"] = text.perplexity(rows)
    ratios = {name: found["duo"][name]["mean_kl"] / (found["stock"][name]["mean_kl"] or 1e-300) for name in references}
    ratios["perplexity"] = found["duo"]["perplexity"] / found["stock"]["perplexity"]
    return {**found, "duo to stock": ratios}


def table(found: dict[str, Any]) -> str:
    lines = [
        "| model | weights | KL, same weights: stock | duo | ratio | p99: stock | duo "
        "| KL to F32 weights: stock | duo | ratio | perplexity: stock | duo |",
        "|" + "---|" * 12,
    ]
    for model, types in found.items():
        for type, row in types.items():
            stock, ours, ratio = row["stock"], row["duo"], row["duo to stock"]
            cells = [f"{side['same weights']['mean_kl']:.2e}" for side in (stock, ours)]
            cells += [f"{ratio['same weights']:.3f}"]
            cells += [f"{side['same weights']['p99_kl']:.2e}" for side in (stock, ours)]
            cells += [f"{side['F32 weights']['mean_kl']:.2e}" for side in (stock, ours)]
            cells += [f"{ratio['F32 weights']:.4f}", f"{stock['perplexity']:.4f}", f"{ours['perplexity']:.4f}"]
            lines.append(f"| {model} | {type} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--source", type=Path, default=demo_pair()[0], help="the demo target, preferably in F16")
    p.add_argument("--text", type=Path, help="UTF-8; default: the openings in prompts/completion_dev.jsonl")
    p.add_argument("--tokens", type=int, default=3840, help=f"most tokens, in whole windows of {WINDOW}")
    p.add_argument("--types", default=TYPES, help=f"of {', '.join(models.FILE_TYPES)}")
    p.add_argument("--width", type=int, default=16, help="tokens in a pass")
    p.add_argument("--cores", default="0", help="LO-HI, one thread per core")
    p.add_argument("--work", type=Path, default=Path("build/kernels"), help="folder for the model files")
    p.add_argument("--out", type=Path, help="JSON")
    args = p.parse_args()
    os.sched_setaffinity(0, cores(args.cores))

    if args.text:
        content = args.text.read_text("utf-8")
    else:
        lines = (Path(__file__).parent / "prompts/completion_dev.jsonl").read_text("utf-8").splitlines()
        content = "\n\n".join(json.loads(line)["turns"][0] for line in lines)
    text = Text(content, args.tokens)
    n_embd, n_ff, n_layer = models.dimensions(args.source)
    plain = models.widened(args.source, args.work, (n_embd, n_ff, n_layer), "f32")
    padded = models.widened(args.source, args.work, (*PADDED, n_layer), "f32")
    sources = {
        "demo": plain,
        "demo, padded": padded,
        "random": models.randomized(padded, args.work / f"random-{padded.name}"),
    }

    originals: dict[str, Rows] = {}
    found: dict[str, dict[str, Any]] = {"demo": {}, "random": {}}
    for model, types in found.items():
        for type in args.types.split(","):
            source = "demo, padded" if model == "demo" and "K" in type else model
            if source not in originals:
                n_threads = len(cores(args.cores))
                originals[source] = text.log_probabilities(sources[source], False, args.width, n_threads)
            types[type] = sides(text, sources[source], type, originals[source], args)
            print(f"{model}, {type}: done", file=sys.stderr)
    references = {name: text.perplexity(rows) for name, rows in originals.items()}
    print(table(found))
    if args.out:
        head = {"machine": machine(), **models.versions(), "command": command_of(sys.argv), "cores": args.cores}
        settings = {"positions": len(text.tokens), "window": WINDOW, "width": args.width}
        content = json.dumps({**head, **settings, "perplexity in F32": references, "models": found}, indent=1)
        args.out.write_text(content + "\n")


if __name__ == "__main__":
    main()
