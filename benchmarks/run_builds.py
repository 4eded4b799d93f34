"""Compares the stock kernels of two builds of llama.cpp, for example with and without -fno-dse.

    python benchmarks/run_builds.py LIB LIB --core 0

LIB: the folder of a build's libraries, such as site-packages/llama_cpp/lib or the lib folder in a wheel. Both must be
of the same release. The two builds take turns, each in its own process. The script takes the best time over the rounds
for each product (a matrix of 64 MB with one input and with 64) and each pass of the demo target (one token, a prompt of
256), and prints second / first.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence

WIDTHS = (1, 64)
RACE_US = 30_000


def measure(core: int, types: Sequence[str] = ()) -> dict[str, float]:
    """Microseconds in this process. types: of weights; empty: all."""
    from duo import _core
    from duo.benchmark import doctor
    from duo.models.demo import demo_pair

    os.sched_setaffinity(0, {core})
    found = {}
    for t in types or _core.kernel_types():
        ((_, times),) = _core.race(t, WIDTHS, [1], RACE_US)
        found |= {f"{t} {width}": stock for width, (stock, _) in zip(WIDTHS, times, strict=True)}
    probe = _core.Probe(doctor.options(str(demo_pair()[0]), 1, [], 600))
    tokens = doctor.context_of(probe, 256)
    found["demo target, prompt of 256"] = min(probe.decode(tokens) for _ in range(3))
    found["demo target, one token"] = min(probe.decode(tokens[:1], 256) for _ in range(100))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("libs", nargs="*", metavar="LIB")
    parser.add_argument("--core", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        print(json.dumps(measure(args.core)))
        return
    if len(args.libs) != 2:
        parser.error("give two folders")
    best: list[dict[str, float]] = [{}, {}]
    for i in range(args.rounds):
        for which in (0, 1) if i % 2 == 0 else (1, 0):
            command = [sys.executable, __file__, "--child", "--core", str(args.core)]
            environment = os.environ | {"LLAMA_CPP_LIB_PATH": args.libs[which]}
            said = subprocess.run(command, check=True, capture_output=True, env=environment).stdout
            for name, us in json.loads(said).items():
                best[which][name] = min(us, best[which].get(name, us))
    for name, us in best[0].items():
        print(f"{name:28} {us / 1e3:9.3f} ms {best[1][name] / 1e3:9.3f} ms  {best[1][name] / us:.3f}")


if __name__ == "__main__":
    main()
