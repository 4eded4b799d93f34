"""`duo race` several times, with another prompt each time: the target alone, then the pair, with default options.

python -m benchmarks.run_races --target big.gguf --draft small.gguf --races 4 --out FILE
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from duo.benchmark.bench.head import command_of, machine


def race(target: str, draft: str, prompt: str, n: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "duo", "race", "-m", target, "-md", draft, "-p", prompt, "--no-escape"]
    command += ["-n", str(n), "--ignore-eos", "--json"]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    got: dict[str, Any] = json.loads(out)
    for key in ("alone", "pair"):
        got[key] = {k: v for k, v in got[key].items() if k not in ("pieces", "timings")}
    return got


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--target", required=True)
    p.add_argument("--draft", required=True)
    p.add_argument("--races", type=int, default=4)
    p.add_argument("-n", type=int, default=200, help="tokens")
    p.add_argument("--prompts", type=Path, default=Path(__file__).parent / "prompts/completion_dev.jsonl")
    p.add_argument("--out", type=Path)
    args = p.parse_args()
    lines = args.prompts.read_text("utf-8").splitlines()
    prompts = [json.loads(x)["turns"][0] for x in lines[:: max(1, len(lines) // args.races)]][: args.races]
    found = []
    print("| race | plain, tokens/s | async, tokens/s | async / plain | same text |\n|---|---|---|---|---|")
    for i, prompt in enumerate(prompts, 1):
        r = race(args.target, args.draft, prompt, args.n)
        found.append(r)
        speeds = " | ".join(f"{r[key]['tokens_per_s']:.1f}" for key in ("alone", "pair"))
        print(f"| {i} | {speeds} | {r['ratio']:.2f} | {'yes' if r['same_text'] else 'no'} |", flush=True)
    if args.out:
        record = {"machine": machine(), "command": command_of(sys.argv), "races": found}
        args.out.write_text(json.dumps(record, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
