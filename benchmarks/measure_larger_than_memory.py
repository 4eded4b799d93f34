"""Tokens per second of a mixture of experts whose file does not fit into memory.

    sudo python -m benchmarks.measure_larger_than_memory [--shares 0.5,0.7,1.2] [--arms NAME ...] [-n 24] [--out FILE]

The model is a Qwen3-MoE with random weights in Q4_0. Each arm is a process of its own in a control group whose memory
is limited to a share of the file, and begins with an empty page cache. Arms: llama-cpp-python on the mapped model; duo
on the file of `duo pack`, with the kernel's own reading (a preloaded library swallows what duo asks for), as it is
(experts are read when their router has chosen them), and with those of the next layers foreseen. With --words it is the
trained mixture of tests/data, widened to that size, greedy, and the arms with a draft have the demo draft.
The disk's best is what it gives to one reader of large pieces.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from benchmarks import models
from benchmarks.mixture_file import MixtureShape, begun
from benchmarks.mixture_words import widened

from duo.benchmark.bench.head import command_of, machine
from duo.models.demo import demo_pair
from duo.placement import packed

N_LAYER, N_EMBD, N_EXPERT, N_USED, N_FF, N_HEAD, N_KV, N_HEAD_DIM = 24, 1536, 64, 8, 512, 16, 4, 96
SHAPE = MixtureShape(N_LAYER, N_EMBD, N_EXPERT, N_USED, N_FF, N_HEAD, N_KV, N_HEAD_DIM)
PROMPT = "Once upon a time"
MIB = 1 << 20

# Prints the tokens, seconds and bytes read by this process while the text was written, after some tokens.
# As llama-server's --no-repack: otherwise Q4_0 is copied into memory that is not the file's.
LLAMA_CPP = """
import llama_cpp
import llama_cpp.llama_cpp as c
defaults = c.llama_model_default_params
def mapped():
    params = defaults()
    params.use_extra_bufts = False
    return params
c.llama_model_default_params = mapped
m = llama_cpp.Llama(MODEL, n_ctx=512, verbose=False)
def write(n):
    tokens = m.generate(m.tokenize(PROMPT.encode()), temp=HEAT, top_k=0, top_p=1.0, min_p=0.0)
    return [t for t, _ in zip(tokens, range(n))]
"""
DUO = """
import duo
m = duo.Duo(MODEL, DRAFT, n_ctx=512)
def write(n):
    how = dict(temperature=HEAT, top_k=0, top_p=1.0, min_p=0.0, seed=1, ignore_eos=True, mode=MODE)
    return list(m.generate(PROMPT, max_tokens=n, **how).tokens)
"""
FORESEEN = """
from duo import _core
_core.foresee_experts("needed")
"""
MEASURE = """
import json, time
def n_read():
    return int(next(x for x in open("/proc/self/io") if x.startswith("read_bytes")).split()[1])
write(4)
began, before = time.monotonic(), n_read()
tokens = write(N)
print(json.dumps([len(tokens), time.monotonic() - began, n_read() - before, tokens]))
"""
# Without what duo asks for: madvise(..., MADV_WILLNEED) does nothing.
SWALLOW = """
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
int madvise(void *p, size_t n, int advice) { return advice == MADV_WILLNEED ? 0 : syscall(SYS_madvise, p, n, advice); }
"""


def made(out: Path) -> Path:
    """The model. All layers have the same experts in another order, which costs a disk as much as others."""
    if out.exists():
        return out
    out.parent.mkdir(parents=True, exist_ok=True)
    part = out.with_name(out.name + ".part")
    writer, n_vocab = begun(part, SHAPE)
    rng = np.random.default_rng(1)
    q4_0 = gguf.GGMLQuantizationType.Q4_0

    def add(name: str, *shape: int, kind: gguf.GGMLQuantizationType = q4_0, scale: float = 1.0) -> None:
        x = rng.standard_normal(shape, np.float32) * (scale / shape[-1] ** 0.5)
        writer.add_tensor(name, gguf.quants.quantize(x, kind), raw_dtype=kind)

    def ones(name: str, n: int) -> None:
        writer.add_tensor(name, np.ones(n, np.float32))

    gate, down = (
        gguf.quants.quantize(rng.standard_normal((N_EXPERT, *s), np.float32) / s[-1] ** 0.5, q4_0)
        for s in ((N_FF, N_EMBD), (N_EMBD, N_FF))
    )
    # The hidden states are mostly those of the token, so each token has experts of its own.
    add("token_embd.weight", n_vocab, N_EMBD, scale=N_EMBD**0.5)
    add("output.weight", n_vocab, N_EMBD)
    ones("output_norm.weight", N_EMBD)
    for i in range(N_LAYER):
        for name in ("attn_norm", "ffn_norm"):
            ones(f"blk.{i}.{name}.weight", N_EMBD)
        for name in ("attn_q_norm", "attn_k_norm"):
            ones(f"blk.{i}.{name}.weight", N_HEAD_DIM)
        add(f"blk.{i}.attn_q.weight", N_HEAD * N_HEAD_DIM, N_EMBD)
        add(f"blk.{i}.attn_k.weight", N_KV * N_HEAD_DIM, N_EMBD)
        add(f"blk.{i}.attn_v.weight", N_KV * N_HEAD_DIM, N_EMBD)
        add(f"blk.{i}.attn_output.weight", N_EMBD, N_HEAD * N_HEAD_DIM, scale=0.1)
        add(f"blk.{i}.ffn_gate_inp.weight", N_EXPERT, N_EMBD, kind=gguf.GGMLQuantizationType.F32)
        for name, x in (("gate", gate), ("up", gate), ("down", down)):
            writer.add_tensor(f"blk.{i}.ffn_{name}_exps.weight", x[rng.permutation(N_EXPERT)], raw_dtype=q4_0)
    return models.written(writer, part, out)


@contextmanager
def limited(n_bytes: int) -> Iterator[str]:
    """A control group, as a shell command that enters it. Needs root. Its page cache counts."""
    v1 = Path("/sys/fs/cgroup/memory")
    group = (v1 if v1.is_dir() else Path("/sys/fs/cgroup")) / f"duo-{os.getpid()}"
    group.mkdir()
    limit = group / ("memory.limit_in_bytes" if v1.is_dir() else "memory.max")
    limit.write_text(str(n_bytes))
    try:
        yield f"echo $$ > {group}/cgroup.procs && exec "
    finally:
        for _ in range(100):  # the last process may still be ending
            try:
                group.rmdir()
                break
            except OSError:
                time.sleep(0.1)


def drop(*files: Path) -> None:
    for path in files:
        with open(path, "rb") as f:
            os.fsync(f.fileno())
            os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def disk(path: Path, n: int = 400 * MIB) -> float:
    """Bytes per second."""
    drop(path)
    began, left = time.monotonic(), n
    with open(path, "rb", buffering=0) as f:
        while left > 0 and (piece := f.read(8 * MIB)):
            left -= len(piece)
    return (n - left) / (time.monotonic() - began)


def run(code: str, limit: int, n: int, files: tuple[Path, ...], env: dict[str, str]) -> tuple[int, float, int, Any]:
    drop(*files)
    program = f"MODEL, PROMPT, N = {str(files[0])!r}, {PROMPT!r}, {n}\n" + code + MEASURE
    with limited(limit) as enter:
        child = subprocess.run(["sh", "-c", enter + '"$0" -c "$1"', sys.executable, program], capture_output=True,
                               text=True, env=os.environ | env)  # fmt: skip
    if child.returncode:
        raise SystemExit(f"exit code {child.returncode}\n{code}\n{child.stderr[-2000:]}")
    tokens, seconds, n_bytes, text = json.loads(child.stdout.splitlines()[-1])
    return tokens, seconds, n_bytes, text


def table(found: dict[str, Any]) -> str:
    lines = ["| memory / file | arm | tokens/s | MB read a token | MB/s |", "|---|---|---|---|---|"]
    for row in found["rows"]:
        lines.append(
            f"| {row['share']} | {row['arm']} | {row['per_second']:.2f} | {row['mb_a_token']:.0f} | {row['mb_s']:.0f} |"
        )
    return "\n".join(lines)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--shares", default="0.5,0.7,1.2", help="limits of memory, as shares of the file")
    p.add_argument("--arms", nargs="+", metavar="NAME", help="of the table's; by default all")
    p.add_argument("--words", metavar="SIZE", help="the trained mixture at 600M, 2G, ..., with and without a draft")
    p.add_argument("-n", type=int, default=24, help="tokens of a text")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--work", type=Path, default=Path("build/larger"), help="folder for the model file")
    p.add_argument("--out", type=Path, help="JSON")
    args = p.parse_args()
    model = widened(args.words, args.work) if args.words else made(args.work / "mixture-q4_0.gguf")
    alone = f"DRAFT, MODE, HEAT = None, 'plain', {0.0 if args.words else 1.0}\n"
    drafted = f"DRAFT, MODE, HEAT = {demo_pair()[1]!r}, 'async', 0.0\n"
    own = Path(packed.default_path(str(model)))
    if not own.exists():
        subprocess.run([sys.executable, "-m", "duo", "pack", str(model)], check=True)
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "swallow.c"), Path(folder, "swallow.so")
        source.write_text(SWALLOW)
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
        arms: dict[str, tuple[str, tuple[Path, ...], dict[str, str]]] = {
            "llama.cpp, mapped": (alone + LLAMA_CPP, (model,), {}),
            "duo, the system reads": (alone + DUO, (model, own), {"LD_PRELOAD": str(library)}),
            "duo, foreseen": (alone + FORESEEN + DUO, (model, own), {}),
            "duo": (alone + DUO, (model, own), {}),
        }
        if args.words:
            arms["duo, a draft, foreseen"] = (drafted + FORESEEN + DUO, (model, own), {})
            arms["duo, a draft"] = (drafted + DUO, (model, own), {})
        if args.arms:
            arms = {name: arms[name] for name in args.arms}
        best = statistics.median(disk(own) for _ in range(3))
        rows = []
        for share in args.shares.split(","):
            results: dict[str, list[tuple[float, float, float]]] = {name: [] for name in arms}
            texts = set()
            for i in range(args.rounds):
                for name in list(arms)[:: 1 - i % 2 * 2]:
                    code, files, env = arms[name]
                    tokens, s, n_bytes, text = run(code, int(float(share) * own.stat().st_size), args.n, files, env)
                    results[name].append((tokens / s, n_bytes / tokens / 1e6, n_bytes / s / 1e6))
                    if name.startswith("duo"):
                        texts.add(str(text))
            assert len(texts) == 1, "texts differ"
            for name, x in results.items():
                per_second, mb, mb_s = (statistics.median(column) for column in zip(*x, strict=True))
                rows.append({"share": float(share), "arm": name, "per_second": per_second, "mb_a_token": mb,
                             "mb_s": mb_s, "rounds": [round(r[0], 3) for r in x]})  # fmt: skip
                print(rows[-1], flush=True)
    found = {"machine": machine(), "command": command_of(sys.argv), "file_mb":
             own.stat().st_size / 1e6, "disk_mb_s": best / 1e6, "rows": rows}  # fmt: skip
    print(f"the disk's best: {best / 1e6:.0f} MB/s; the packed file: {own.stat().st_size / 1e6:.0f} MB")
    print(table(found))
    if args.out:
        args.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
