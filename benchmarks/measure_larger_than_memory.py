"""Tokens per second of a mixture of experts whose file does not fit into memory.

    sudo python -m benchmarks.measure_larger_than_memory [--shares 0.5,0.7,1.2] [--disk-rate 100M,1G] [--arms NAME ...]
        [-n 24] [--out FILE]

The model is a Qwen3-MoE with random weights in Q4_0. Each arm is a process of its own in a control group whose memory
is limited to a share of the file, and begins with an empty page cache. Arms: llama-cpp-python on the mapped model; duo
on the file of `duo pack`, with the kernel's own reading (a preloaded library swallows what duo asks for), as it is
(experts are read when their router has chosen them), and with those of the next layers foreseen. With --words it is the
trained mixture of tests/data, widened to that size, greedy, and the arms with a draft have the demo draft. The disk's
best is what it gives to one reader of large pieces. With --disk-rate the control group also limits what is read in a
second: a slower disk with the same latency.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import gguf
import numpy as np
from benchmarks import models
from benchmarks.control_group import BYTES_READ, ControlGroup, NoControlGroupError
from benchmarks.mixture_file import MixtureShape, begun
from benchmarks.mixture_words import widened

from duo.benchmark.bench.head import command_of, machine
from duo.cli.commands.dev import parse_size
from duo.models.demo import demo_pair
from duo.placement import packed

N_LAYER, N_EMBD, N_EXPERT, N_USED, N_FF, N_HEAD, N_KV, N_HEAD_DIM = 24, 1536, 64, 8, 512, 16, 4, 96
SHAPE = MixtureShape(N_LAYER, N_EMBD, N_EXPERT, N_USED, N_FF, N_HEAD, N_KV, N_HEAD_DIM)
PROMPT = "Once upon a time"
MIB = 1 << 20
Arm = tuple[str, tuple[Path, ...], dict[str, str]]  # code, the files that it reads, environment

# Prints the tokens, seconds and bytes read by this process while the text was written, after some tokens; and the text.
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
def number(name, file):
    return int(next(x for x in open("/proc/self/" + file) if x.startswith(name)).split()[1])
write(4)
began, before = time.monotonic(), number("read_bytes", "io")
tokens = write(N)
print(json.dumps([len(tokens), time.monotonic() - began, number("read_bytes", "io") - before, tokens]))
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


def drop(*files: Path) -> None:
    for path in files:
        with open(path, "rb") as f:
            os.fsync(f.fileno())
            os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


class Limits(NamedTuple):
    file: Path  # the packed one
    share: float  # of it, that memory holds
    rate: int | None  # bytes in a second that the disk gives; None: its own


def inside(limits: Limits, command: list[str], env: dict[str, str] | None = None) -> str:
    """What this command of Python prints in a control group."""
    with ControlGroup(f"duo-{os.getpid()}") as group:
        group.limit_memory(int(limits.share * limits.file.stat().st_size))
        if limits.rate is not None:
            group.limit_reading(limits.file, limits.rate)
        words = group.inside(sys.executable, *command)
        child = subprocess.run(words, capture_output=True, text=True, env=os.environ | (env or {}))
    if child.returncode:
        raise SystemExit(f"exit code {child.returncode}\n{command}\n{child.stderr[-2000:]}")
    return child.stdout.splitlines()[-1]


def disk(path: Path, rate: int | None) -> float:
    """Bytes per second."""
    n = min(400 * MIB, 2 * rate if rate is not None else sys.maxsize)
    drop(path)
    return float(inside(Limits(path, 1.0, rate), ["-c", BYTES_READ, str(path), str(n)]))


def run(code: str, limits: Limits, n: int, files: tuple[Path, ...], env: dict[str, str]) -> list[Any]:
    drop(*files)
    program = f"MODEL, PROMPT, N = {str(files[0])!r}, {PROMPT!r}, {n}\n" + code + MEASURE
    found: list[Any] = json.loads(inside(limits, ["-c", program], env))
    return found


def table(found: dict[str, Any]) -> str:
    lines = ["| disk, MB/s | memory / file | arm | tokens/s | MB read a token | MB/s |", "|---|---|---|---|---|---|"]
    for row in found["rows"]:
        lines.append(
            f"| {row['disk_mb_s']:.0f} | {row['share']} | {row['arm']} | {row['per_second']:.2f} "
            f"| {row['mb_a_token']:.0f} | {row['mb_s']:.0f} |"
        )
    return "\n".join(lines)


def measured(arms: dict[str, Arm], limits: Limits, n: int, n_rounds: int) -> list[dict[str, Any]]:
    """The rows of the table with these limits."""
    results: dict[str, list[tuple[float, ...]]] = {name: [] for name in arms}
    texts = set()
    for i in range(n_rounds):
        for name in list(arms)[:: 1 - i % 2 * 2]:
            code, files, env = arms[name]
            tokens, s, n_bytes, text = run(code, limits, n, files, env)
            results[name].append((tokens / s, n_bytes / tokens / 1e6, n_bytes / s / 1e6))
            if name.startswith("duo"):
                texts.add(str(text))
    assert len(texts) <= 1, "texts differ"
    rows = []
    for name, x in results.items():
        per_second, mb, mb_s = (statistics.median(column) for column in zip(*x, strict=True))
        rows.append({"share": limits.share, "arm": name, "per_second": per_second, "mb_a_token": mb, "mb_s": mb_s,
                     "rounds": [[round(r[0], 3), round(r[1])] for r in x]})  # fmt: skip
    return rows


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--shares", default="0.5,0.7,1.2", help="limits of memory, as shares of the file")
    p.add_argument("--disk-rate", metavar="LIST", help="bytes in a second that the disk may give, as 100M,1G")
    p.add_argument("--arms", nargs="+", metavar="NAME", help="of the table's; by default all")
    p.add_argument("--words", metavar="SIZE", help="the trained mixture at 600M, 2G, ..., with and without a draft")
    p.add_argument("-n", type=int, default=24, help="tokens of a text")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--work", type=Path, default=Path("build/larger"), help="folder for the model file")
    p.add_argument("--out", type=Path, help="JSON")
    args = p.parse_args()
    model = widened(args.words, args.work) if args.words else made(args.work / "mixture-q4_0.gguf")
    alone = f"DRAFT, MODE, HEAT = None, 'plain', {0.0 if args.words else 1.0}\n"
    drafted = f"DRAFT, MODE, HEAT = {str(demo_pair()[1])!r}, 'async', 0.0\n"
    own = Path(packed.default_path(str(model)))
    if not own.exists():
        subprocess.run([sys.executable, "-m", "duo", "pack", str(model)], check=True)
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "swallow.c"), Path(folder, "swallow.so")
        source.write_text(SWALLOW)
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
        arms: dict[str, Arm] = {
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
        rates = [int(parse_size(x)) for x in args.disk_rate.split(",")] if args.disk_rate else [None]
        rows = []
        for rate in rates:
            best = statistics.median(disk(own, rate) for _ in range(3)) / 1e6
            for share in args.shares.split(","):
                for row in measured(arms, Limits(own, float(share), rate), args.n, args.rounds):
                    rows.append({"disk_mb_s": best} | row)
                    print(rows[-1], flush=True)
    file_mb = own.stat().st_size / 1e6
    found = {"machine": machine(), "command": command_of(sys.argv), "file_mb": file_mb, "rows": rows}
    print(f"the packed file: {file_mb:.0f} MB")
    print(table(found))
    if args.out:
        args.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    try:
        main()
    except NoControlGroupError as e:
        raise SystemExit(f"measure_larger_than_memory: {e}") from e
