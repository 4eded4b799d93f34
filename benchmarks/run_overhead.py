"""duo's own time per verification: the part of a cycle that is neither the target's pass nor a wait.

    python benchmarks/run_overhead.py --work build/overhead --out benchmarks/results/overhead.json
    python benchmarks/run_overhead.py --context 32000 --vocabularies 32000 --ways "greedy, chain of 4" "greedy, plain"

The demo target gets a vocabulary of 32,000 and of 128,256 tokens (the added tokens have zero weights). It is its own
draft, so most guesses are right and each pass samples several rows; where guesses are never right, the draft has random
weights. --context: the text begins with so many tokens, which both models read once, all of them.
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

from duo.benchmark.bench.head import command_of, head_of, settings_of
from duo.gguf_tools.random_model import randomize
from duo.gguf_tools.switched_duo import SwitchedDuo
from duo.models.demo import demo_pair

PER_TOKEN = ("tokenizer.ggml.tokens", "tokenizer.ggml.scores", "tokenizer.ggml.token_type")
VOCABULARIES = (32_000, 128_256)
N_WORDS = 4_000  # tokens that the demo target has by itself
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
GUESS: dict[str, Any] = {"temperature": 0, "n_draft": 1, "draft_tree": "chain", "mode": "sync"}
NEVER_RIGHT: dict[str, dict[str, Any]] = {
    "greedy, chain of 3, never right": {"temperature": 0, "n_draft": 3, "draft_tree": "chain", "mode": "sync"},
    "greedy, plain beside that draft": {"temperature": 0, "mode": "plain"},
}


def with_vocabulary(source: Path, out: Path, n: int, n_ctx: int) -> Path:
    """`source` with a vocabulary of n tokens and a context of n_ctx; added tokens have new names and zero weights."""
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
        elif field.name.endswith(".context_length"):
            value = max(value, n_ctx)
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


def prompt_of(n_tokens: int) -> str | list[int]:
    if n_tokens == 0:
        return "Once upon a time"
    return np.random.default_rng(1).integers(N_WORDS // 2, N_WORDS, n_tokens).tolist()


def measure(
    target: Path, draft: Path, ways: dict[str, dict[str, Any]], args: argparse.Namespace, *, always: bool = False
) -> list[dict[str, Any]]:
    prompt, n_ctx = prompt_of(args.context), args.context + 512
    place = {"n_ctx": n_ctx, "cpu_range": args.cores, "cpu_range_draft": args.cores_draft, "draft_window": 0}
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    with SwitchedDuo(target, draft, always=always, n_ctx_draft=n_ctx, **place) as d:
        while args.context and not d.generate(prompt, max_tokens=64, ignore_eos=True, **GUESS).timings["draft_rounds"]:
            pass  # texts do not wait until the draft has read so much
        for i in range(args.repetitions + 1):
            for name, way in ways.items():
                t = d.generate(prompt, max_tokens=128, ignore_eos=True, seed=1, **way).timings
                if i > 0:
                    sampled = t["predicted_n"] / max(1, t["target_passes_n"])
                    found[name].append((t["overhead_us_per_pass"], sampled))
    rows = []
    for name, values in found.items():
        us = [v[0] for v in values]
        rows.append({"way": name, "us": statistics.median(us), "least": min(us), "most": max(us),
                     "rows_sampled": statistics.median(v[1] for v in values)})  # fmt: skip
    return rows


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--work", type=Path, default=Path("build/overhead"))
    p.add_argument("--cores", default="0-0")
    p.add_argument("--cores-draft", default="1-1")
    p.add_argument("--repetitions", type=int, default=7)
    p.add_argument("--context", type=int, default=0, help="tokens before the text; 0: four words")
    p.add_argument("--vocabularies", default=",".join(map(str, VOCABULARIES)))
    p.add_argument("--ways", nargs="+", default=[*WAYS, *NEVER_RIGHT], choices=[*WAYS, *NEVER_RIGHT], metavar="WAY")
    p.add_argument("--out", type=Path)
    args = p.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    rows = []
    print("| vocabulary | mode | us per pass (least to most) | rows sampled per pass |\n|---|---|---|---|")
    right, wrong = ({name: ways[name] for name in args.ways if name in ways} for ways in (WAYS, NEVER_RIGHT))
    for n in map(int, args.vocabularies.split(",")):
        path = with_vocabulary(demo_pair()[0], args.work / f"demo-{n}.gguf", n, args.context + 512)
        useless = args.work / f"random-{n}.gguf"
        randomize(path, useless, seed=7)
        # At a long context guesses never pay: attention costs as much for each row.
        found = measure(path, path, right, args, always=args.context > 0) if right else []
        found += measure(path, useless, wrong, args, always=True) if wrong else []
        for row in found:
            rows.append({"vocabulary": n, **row})
            print(
                f"| {n:,} | {row['way']} | {row['us']:.0f} ({row['least']:.0f} to {row['most']:.0f}) "
                f"| {row['rows_sampled']:.1f} |",
                flush=True,
            )
    if args.out:
        head = head_of([], command_of(sys.argv), settings_of(vars(args)))
        args.out.write_text(json.dumps({"head": head, "rows": rows}, indent=1, default=str) + "\n")


if __name__ == "__main__":
    main()
