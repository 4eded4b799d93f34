"""duo's own time per verification: the part of a cycle that is neither the target's pass nor a wait.

    python benchmarks/run_overhead.py --work build/overhead --out benchmarks/results/overhead.json

The demo target gets a vocabulary of 32,000 and of 128,256 tokens (the added tokens have zero weights). It is its own
draft, so most guesses are right and each pass samples several rows.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np

import duo
from duo.benchmark.bench.head import command_of, head_of, settings_of
from duo.models.demo import demo_pair

PER_TOKEN = ("tokenizer.ggml.tokens", "tokenizer.ggml.scores", "tokenizer.ggml.token_type")
VOCABULARIES = (32_000, 128_256)
WAYS: dict[str, dict[str, Any]] = {
    "greedy, chain of 4": {"temperature": 0, "n_draft": 4, "draft_tree": "chain", "mode": "sync"},
    "temperature 0.8, chain of 4": {"temperature": 0.8, "n_draft": 4, "draft_tree": "chain", "mode": "sync"},
    "greedy, async auto": {"temperature": 0},
    "temperature 0.8, async auto": {"temperature": 0.8},
    "greedy, tree of 16": {"temperature": 0, "n_draft": 16, "draft_tree": "dynamic", "mode": "sync"},
    "temperature 0.8, penalties, chain of 4": {
        "temperature": 0.8, "n_draft": 4, "mode": "sync", "repeat_penalty": 1.1,
    },
    "greedy, plain": {"temperature": 0, "mode": "plain"},
}  # fmt: skip


def with_vocabulary(source: Path, out: Path, n: int) -> Path:
    """`source` with a vocabulary of n tokens; added tokens have new names and zero weights."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(out, "llama")
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        value, is_array = field.contents(), field.types[0] == gguf.GGUFValueType.ARRAY
        if field.name in PER_TOKEN:
            more = n - len(value)
            added = {"tokens": [f"<added {i}>" for i in range(more)], "scores": [0.0] * more, "token_type": [5] * more}
            value = [*value, *added[field.name.rpartition(".")[2]]]
        elif field.name.endswith(".vocab_size"):
            value = n
        writer.add_key_value(field.name, value, field.types[0], sub_type=field.types[-1] if is_array else None)
    for t in reader.tensors:
        data = t.data
        if t.name in ("token_embd.weight", "output.weight"):
            data = np.concatenate([data, np.zeros((n - data.shape[0], data.shape[1]), data.dtype)])
        writer.add_tensor(t.name, data, raw_dtype=t.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return out


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--work", type=Path, default=Path("build/overhead"))
    p.add_argument("--cores", default="0-0")
    p.add_argument("--cores-draft", default="1-1")
    p.add_argument("--repetitions", type=int, default=7)
    p.add_argument("--out", type=Path)
    args = p.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    rows = []
    print("| vocabulary | mode | us per pass (least to most) | rows sampled per pass |\n|---|---|---|---|")
    for n in VOCABULARIES:
        path = with_vocabulary(demo_pair()[0], args.work / f"demo-{n}.gguf", n)
        with duo.Duo(path, path, n_ctx=512, cpu_range=args.cores, cpu_range_draft=args.cores_draft) as d:
            found: dict[str, list[tuple[float, float]]] = {name: [] for name in WAYS}
            for i in range(args.repetitions + 1):
                for name, way in WAYS.items():
                    t = d.generate("Once upon a time", max_tokens=128, ignore_eos=True, seed=1, **way).timings
                    if i > 0:
                        sampled = t["predicted_n"] / max(1, t["target_passes_n"])
                        found[name].append((t["overhead_us_per_pass"], sampled))
        for name, values in found.items():
            us = [v[0] for v in values]
            row = {"vocabulary": n, "way": name, "us": statistics.median(us), "least": min(us), "most": max(us),
                   "rows_sampled": statistics.median(v[1] for v in values)}  # fmt: skip
            rows.append(row)
            print(
                f"| {n:,} | {name} | {row['us']:.0f} ({row['least']:.0f} to {row['most']:.0f}) "
                f"| {row['rows_sampled']:.1f} |",
                flush=True,
            )
    if args.out:
        head = head_of([], command_of(sys.argv), settings_of(vars(args)))
        args.out.write_text(json.dumps({"head": head, "rows": rows}, indent=1, default=str) + "\n")


if __name__ == "__main__":
    main()
