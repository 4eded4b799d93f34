"""What a step of the draft asks of the GPU besides its kernels: submissions, waits, copies and their bytes.

    python -m benchmarks.gpu.copies --model 8b.gguf --out FILE

It measures passes of 1 to 16 rows that give the logits of every row, as a step does. A small library between ggml and
the driver counts the calls (tools/gpu_calls.c). Needs a C compiler.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

NAMES = ("submits", "waits", "copies", "copied_bytes", "launches")
WIDTHS = (1, 2, 4, 8, 16)
N_CONTEXT = 200


def measure(path: str, repeat: int) -> dict[str, Any]:
    from duo import _core
    from duo.benchmark.doctor import context_of, options
    from duo.placement.devices import default_devices, default_flash_attn, devices

    names = default_devices(devices())
    counters = ctypes.CDLL(os.environ["LD_PRELOAD"])
    found = (ctypes.c_long * len(NAMES))()
    o = options(path, 1, [], N_CONTEXT + 32)
    o.devices, o.n_gpu_layers = list(names), -1
    o.flash_attn = default_flash_attn(devices(), names)
    probe = _core.Probe(o)
    context = context_of(probe, N_CONTEXT)
    tokens = context_of(probe, 40)[-16:]
    probe.decode(context, 0)
    rows = []
    for width in WIDTHS:
        times: list[float] = []
        for i in range(repeat + 2):
            counters.read_counters(found)
            us = probe.decode(tokens[:width], N_CONTEXT)
            counters.read_counters(found)
            if i >= 2:  # the first ones compile and allocate
                times.append(us)
        rows.append({"width": width, "us": statistics.median(times), **dict(zip(NAMES, found, strict=True))})
    return {"devices": list(names), "n_vocab": probe.n_vocab, "rows": rows}


def main() -> None:
    p = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    p.add_argument("--model", required=True)
    p.add_argument("--repeat", type=int, default=20)
    p.add_argument("--out", type=Path)
    p.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = p.parse_args()
    if args.child:
        print(json.dumps(measure(args.model, args.repeat)))
        return
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "gpu_calls.so"
        source = Path(__file__).parents[2] / "tools" / "gpu_calls.c"
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
        command = [sys.executable, "-m", "benchmarks.gpu.copies", "--child", "--model", args.model]
        environment = os.environ | {"LD_PRELOAD": str(library)}
        done = subprocess.run(
            [*command, "--repeat", str(args.repeat)], env=environment, capture_output=True, text=True, check=True
        )
    found = json.loads(done.stdout.splitlines()[-1])
    print(f"{', '.join(found['devices'])}, {found['n_vocab']} tokens in the vocabulary")
    print("| rows | us | submissions | waits | copies | KiB copied | kernels |")
    print("|---:|---:|---:|---:|---:|---:|---:|")
    for r in found["rows"]:
        print(
            f"| {r['width']} | {r['us']:.0f} | {r['submits']} | {r['waits']} | {r['copies']} "
            f"| {r['copied_bytes'] / 1024:.0f} | {r['launches']} |"
        )
    if args.out:
        args.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
