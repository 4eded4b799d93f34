"""What taking back wrong guesses costs a target with a recurrent state.

    python benchmarks/measure_rollback.py MODEL.gguf [--acceptance 0.7] [--guesses 4] [--passes 60] [--out FILE]

Two contexts on the same weights write in turn, pass by pass. One has no guesses to take back: all its rows are right.
The other takes back the rows behind the first wrong guess, by snapshots or from a copy; each guess is right by chance.
Tokens of both are counted by the same chances, so the ratio is that of the time, and of the rows that a copy makes
necessary again. A third context, without snapshots, has the pass times of a target that could not go back.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
from pathlib import Path
from typing import Any

from duo import _core
from duo.benchmark.bench.head import machine
from duo.benchmark.doctor import context_of
from duo.benchmark.doctor import options as target_options
from duo.models.header import read_header
from duo.placement.states import way_back

N_TEXT = 64  # tokens before the first pass


def probe_of(path: str, n_ctx: int, n_threads: int, guesses: bool) -> _core.Probe:
    o = target_options(path, n_threads, _core.cpu_types(path.encode(), 0), n_ctx)
    o.guesses = guesses
    return _core.Probe(o)


def accepted(chances: random.Random, acceptance: float, n_guesses: int) -> int:
    n = 0
    while n < n_guesses and chances.random() < acceptance:
        n += 1
    return n


class Arm:
    """A context that writes, and its figures. takes_back: rows behind the first wrong guess are taken back."""

    def __init__(self, probe: _core.Probe, way: str, takes_back: bool) -> None:
        self.probe, self.way, self.takes_back = probe, way, takes_back
        self.pos, self.again = N_TEXT, 0  # rows that the next pass evaluates again
        self.us: list[int] = []
        self.n_tokens = 0
        probe.decode(context_of(probe, N_TEXT), 0)

    def write(self, tokens: list[int], n_guesses: int, n_right: int) -> None:
        """One pass over the root and the guesses, of which the first n_right are right."""
        first = self.pos - self.again
        self.us.append(self.probe.decode(tokens[: self.again + 1 + n_guesses], first))
        self.n_tokens += n_right + 1
        if not self.takes_back:
            self.pos, self.again = self.pos + n_guesses + 1, 0
        elif n_right == n_guesses or self.way == "snapshots":
            self.pos, self.again = self.pos + n_right + 1, 0
        else:  # the state from before the pass is taken, and the rows that were right come again
            self.again += n_right + 1
            self.pos += n_right + 1


def measure(path: str, n_guesses: int, acceptance: float, n_passes: int, n_threads: int) -> dict[str, Any]:
    way = way_back(read_header(path))
    n_ctx = N_TEXT + (n_guesses + 1) * (n_passes + 2)
    arms = {
        "takes back": Arm(probe_of(path, n_ctx, n_threads, True), way, True),
        "all right": Arm(probe_of(path, n_ctx, n_threads, True), way, False),
        "no snapshots, all right": Arm(probe_of(path, n_ctx, n_threads, False), way, False),
        "plain": Arm(probe_of(path, n_ctx, n_threads, False), way, False),
    }
    tokens = context_of(arms["plain"].probe, 64)
    chances = random.Random(1)
    for i in range(n_passes):
        n_right = accepted(chances, acceptance, n_guesses)
        for name in sorted(arms, key=lambda _: chances.random()):
            if name == "plain":
                arms[name].write(tokens, 0, 0)
            elif arms[name].again + n_guesses < 16:
                arms[name].write(tokens, n_guesses, n_right)
            else:  # too many rows come again: a pass without guesses
                arms[name].write(tokens, 0, 0)
        if i < 2:
            for arm in arms.values():
                arm.us.clear()
                arm.n_tokens = 0
    ms = {name: statistics.median(a.us) / 1e3 for name, a in arms.items()}
    rate = {
        name: a.n_tokens / (len(a.us) * statistics.fmean(sorted(a.us)[: -max(1, len(a.us) // 20)])) * 1e6
        for name, a in arms.items()
    }
    return {
        "way": way,
        "guesses": n_guesses,
        "ms of a pass": ms,
        "tokens/s": rate,
        "takes back / all right": rate["takes back"] / rate["all right"],
        "takes back / all right without snapshots": rate["takes back"] / rate["no snapshots, all right"],
        "takes back / plain": rate["takes back"] / rate["plain"],
    }


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model")
    p.add_argument("--acceptance", type=float, default=0.7)
    p.add_argument("--guesses", default="2,4")
    p.add_argument("--passes", type=int, default=60)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--out", type=Path)
    o = p.parse_args()
    found = [measure(o.model, int(n), o.acceptance, o.passes, o.threads) for n in o.guesses.split(",")]
    text = json.dumps(
        {
            "machine": machine(),
            "model": Path(o.model).name,
            "acceptance": o.acceptance,
            "threads": o.threads,
            "runs": found,
        },
        indent=2,
    )
    print(text)
    if o.out:
        o.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
