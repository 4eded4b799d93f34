"""A target that is larger than the GPU's share of memory: what helps most?

    python -m benchmarks.gpu.headline --target 70b.gguf --draft 8b.gguf --budget 24 --out FILE

It compares, greedy and on the same prompts: the target on the CPU; llama.cpp's loop with as many layers on the GPU as
the budget holds; llama.cpp's speculation by turns with the draft and the remaining layers there; duo plain, sync and
async with 0, 11 and half of the layers beside the draft, if the budget holds them. With --place gpu both models are on
the GPU and duo has its default options; with --place cpu neither is. Each arm is a process of its own, so that its
memory is free again. Needs benchmarks/llama_cpp/build.sh for llama.cpp's loops.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from duo.benchmark.bench.head import command_of, machine
from duo.models.header import read_header
from duo.placement.cpus import usable_cores
from duo.placement.devices import default_devices, devices
from duo.placement.memory import most_layers, need_of

N_CTX = 2048


class Busy:
    """Shares of the time in which the GPU and the CPU's cores worked, sampled while it is open."""

    def __init__(self) -> None:
        self.gpu: list[float] = []
        self.cpu = 0.0

    def _sample(self, smi: subprocess.Popen[str]) -> None:
        assert smi.stdout is not None
        for line in smi.stdout:
            if line.strip().isdigit():
                self.gpu.append(float(line) / 100)

    @staticmethod
    def _ticks() -> tuple[int, int]:
        numbers = [int(x) for x in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
        return sum(numbers) - numbers[3] - numbers[4], sum(numbers)

    def __enter__(self) -> Busy:
        self._before = self._ticks()
        self._smi = None
        if program := shutil.which("nvidia-smi"):
            query = [program, "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "-lms", "100"]
            self._smi = subprocess.Popen(query, stdout=subprocess.PIPE, text=True)
            threading.Thread(target=self._sample, args=(self._smi,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        busy, total = (b - a for a, b in zip(self._before, self._ticks(), strict=True))
        self.cpu = busy / max(1, total)
        if self._smi is not None:
            self._smi.kill()

    @property
    def shares(self) -> dict[str, float | None]:
        return {"gpu_busy": statistics.mean(self.gpu) if self.gpu else None, "cpu_busy": self.cpu}


def run_duo(arm: dict[str, Any], prompts: list[str], n: int) -> dict[str, Any]:
    from duo import Duo

    speeds, first, accepted, drafted, passes, tokens = [], [], 0, 0, 0, 0
    with Duo(arm["target"], arm["draft"], n_ctx=N_CTX, **arm["options"]) as d:
        d.generate(prompts[0], mode=arm["mode"], max_tokens=16, ignore_eos=True)
        with Busy() as busy:
            for prompt in prompts:
                t = d.generate(prompt, mode=arm["mode"], max_tokens=n, temperature=0, ignore_eos=True).timings
                speeds.append(t["predicted_per_second"])
                first.append(t["ttft_ms"])
                accepted += t.get("draft_n_accepted", 0)
                drafted += t.get("draft_n", 0)
                passes += t["target_passes_n"]
                tokens += t["predicted_n"]
    return {
        "tokens_per_s": statistics.median(speeds),
        "ttft_ms": statistics.median(first),
        "acceptance": accepted / drafted if drafted else None,
        "tokens_per_pass": tokens / max(1, passes),
        **busy.shares,
    }


def run_loop(arm: dict[str, Any], prompts: list[str], n: int) -> dict[str, Any]:
    from benchmarks.llama_cpp.llama_cpp import Loop, Plain, Speculative

    threads = usable_cores()
    shared = {"n_predict": n, "threads": threads, "ignore_eos": True, "n_ctx": N_CTX, **arm["options"]}
    loop = Speculative(arm["target"], arm["draft"], **shared) if arm["draft"] else Plain(arm["target"], **shared)
    with Loop(loop) as running:
        running.run(prompts[0])
        with Busy() as busy:
            runs = [running.run(prompt) for prompt in prompts]
    return {
        "tokens_per_s": statistics.median(r.tokens_per_s for r in runs),
        "ttft_ms": 1e3 * statistics.median(r.first_s for r in runs),
        "acceptance": statistics.mean(r.acceptance for r in runs) if arm["draft"] else None,
        "tokens_per_pass": sum(len(r.tokens) for r in runs) / max(1, sum(r.n_passes for r in runs)),
        **busy.shares,
    }


def same_place_arms(target: str, draft: str, place: str) -> list[dict[str, Any]]:
    """Who is compared where both models are on the GPU or both on the CPU. llama.cpp's default draft length is 3."""
    n, options = (999, {}) if place == "gpu" else (0, {"device": "none", "device_draft": "none"})
    found: list[dict[str, Any]] = [
        {"name": "llama.cpp", "draft": None, "loop": True, "options": {"n_gpu_layers": n}},
    ]
    for k in (2, 3, 6):
        both = {"n_gpu_layers": n, "n_gpu_layers_draft": n, "n_draft": k}
        found.append({"name": f"llama.cpp speculation k={k}", "draft": draft, "loop": True, "options": both})
    found.append({"name": "duo without a draft", "draft": None, "mode": "plain", "options": options})
    for mode in ("sync", "async"):
        found.append({"name": f"duo {mode}", "draft": draft, "mode": mode, "options": options})
    return [a | {"target": target} for a in found]


def partial_arms(target: str, draft: str, budget: int) -> list[dict[str, Any]]:
    """Who is compared where the GPU has `budget` bytes; layers are chosen so that each arm fits."""
    header, small = read_header(target), read_header(draft)
    whole = need_of(small, N_CTX, draft=True).total
    need = need_of(header, N_CTX, helped=True)
    alone, beside = most_layers(need, [budget]), most_layers(need, [max(0, budget - whole)])
    loop = {"n_gpu_layers": alone}
    found: list[dict[str, Any]] = [
        {"name": "duo plain, CPU", "draft": None, "mode": "plain", "options": {"device": "none"}},
        {"name": f"llama.cpp, {alone} layers", "draft": None, "loop": True, "options": loop},
    ]
    for k in (3, 8):
        both = {"n_gpu_layers": beside, "n_gpu_layers_draft": 999, "n_draft": k}
        name = f"llama.cpp speculation k={k}, {beside} layers"
        found.append({"name": name, "draft": draft, "loop": True, "options": both})
    for n in sorted({0, min(11, beside), min(header.n_layer // 2, beside), beside}):
        for mode in ("plain", "sync", "async"):
            options = {"n_gpu_layers": n, "n_gpu_layers_draft": "all"}
            found.append({"name": f"duo {mode}, {n} layers", "draft": draft, "mode": mode, "options": options})
    return [a | {"target": target} for a in found]


def arms_of(args: argparse.Namespace) -> list[dict[str, Any]]:
    target, draft = str(args.target), str(args.draft)
    if args.place == "part":
        found = partial_arms(target, draft, int(args.budget * 1e9))
    else:
        found = same_place_arms(target, draft, args.place)
    wanted = re.compile(args.only)
    return [a for a in found if wanted.search(a["name"]) and not (args.no_loops and a.get("loop"))]


def run_arm(arm: dict[str, Any], args: argparse.Namespace) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.gpu.headline", "--child", json.dumps(arm)]
    command += ["-n", str(args.n), "--questions", str(args.questions)]
    begin = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=args.arm_minutes * 60)
    if done.returncode != 0:
        return {"name": arm["name"], "failed": (done.stderr.strip().splitlines() or ["no reason"])[-1]}
    return {"name": arm["name"], "seconds": time.monotonic() - begin} | json.loads(done.stdout.splitlines()[-1])


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| | tokens/s | to CPU | to the best without guesses | tokens/pass | accepted | GPU | CPU |",
        "|---|" + "---:|" * 7,
    ]
    good = {r["name"]: r["tokens_per_s"] for r in rows if "tokens_per_s" in r}
    cpu = next((v for k, v in good.items() if k.endswith("CPU")), 0.0)
    alone = re.compile(r"llama\.cpp(, |$)|duo plain|duo without")
    partial = max((v for k, v in good.items() if alone.match(k)), default=0.0)

    def share(x: float | None) -> str:
        return "" if x is None else f"{100 * x:.0f}%"

    for r in rows:
        if "failed" in r:
            lines.append(f"| {r['name']} | {r['failed']} | | | | | | |")
            continue
        speed = r["tokens_per_s"]
        ratios = [f"{speed / base:.2f}" if base else "" for base in (cpu, partial)]
        rest = [f"{r['tokens_per_pass']:.2f}", share(r["acceptance"]), share(r["gpu_busy"]), share(r["cpu_busy"])]
        lines.append(f"| {r['name']} | {speed:.2f} | {' | '.join([*ratios, *rest])} |")
    return "\n".join(lines)


def main() -> None:
    p = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    p.add_argument("--target", type=Path)
    p.add_argument("--draft", type=Path)
    p.add_argument("--budget", type=float, default=24.0, help="GB on the GPU that an arm may use")
    p.add_argument("--place", choices=("part", "gpu", "cpu"), default="part", help="where the models are")
    p.add_argument("--only", metavar="REGEX", default="", help="of the arms, those whose names match")
    p.add_argument("-n", type=int, default=96)
    p.add_argument("--questions", type=int, default=3)
    p.add_argument("--no-loops", action="store_true", help="without llama.cpp's own loops")
    p.add_argument("--arm-minutes", type=float, default=4.0)
    p.add_argument("--out", type=Path)
    p.add_argument("--child", help=argparse.SUPPRESS)
    args = p.parse_args()
    lines = (Path(__file__).parents[1] / "prompts/completion_dev.jsonl").read_text("utf-8").splitlines()
    prompts = [json.loads(x)["turns"][0] for x in lines][: args.questions]
    if args.child:
        arm = json.loads(args.child)
        print(json.dumps(run_loop(arm, prompts, args.n) if arm.get("loop") else run_duo(arm, prompts, args.n)))
        return
    if args.place != "cpu" and not default_devices(devices()):
        sys.exit("no GPU is here; duo devices shows what there is")
    os.environ["DUO_PROFILES"] = "off"
    rows = []
    for arm in arms_of(args):
        rows.append(run_arm(arm, args))
        print(table(rows[-1:]).splitlines()[-1], file=sys.stderr, flush=True)
    print(table(rows))
    if args.out:
        head = {"machine": machine(), "command": command_of(sys.argv), "devices": [d._asdict() for d in devices()]}
        args.out.write_text(
            json.dumps(head | {"place": args.place, "budget_gb": args.budget, "arms": rows}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
