"""What starts of processes cost: imports, commands, a server until it answers. CPU time and wall time of children.

    python -m benchmarks.measure_start --rounds 7

The cases take turns, so that a change of the machine's speed meets all of them. The first round is not counted.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator

PYTHON = [sys.executable, "-c"]
DUO = [sys.executable, "-m", "duo"]
ONE_TOKEN = ["-p", "Once", "-n", "1", "--temp", "0"]
CASES = {
    "python -c pass": [*PYTHON, "pass"],
    "import duo; duo.Duo": [*PYTHON, "import duo; duo.Duo"],
    "import duo.server.app": [*PYTHON, "import duo.server.app"],
    "duo --help": [*DUO, "--help"],
    "duo run --help-all": [*DUO, "run", "--help-all"],
    "duo -p Once -n 1 --temp 0": [*DUO, *ONE_TOKEN],
}
SERVED = "duo serve, until it answers, and its end"
# CPU seconds of each Duo of a process; a text of one token makes sure that it works.
TWO = """
import json, time, duo
def seconds():
    began = time.process_time()
    with duo.Duo(*duo_pair) as d:
        d.generate("Once", max_tokens=1, temperature=0)
    return time.process_time() - began
duo.Duo
from duo.models.demo import demo_pair
duo_pair = demo_pair()
print(json.dumps([seconds(), seconds()]))
"""


def ended(child: subprocess.Popen[str], began: float) -> tuple[float, float]:
    """CPU seconds, with those of its own children, and wall seconds."""
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0, f"{child.args} failed with {child.returncode}"
    return used.ru_utime + used.ru_stime, time.monotonic() - began


def run(args: list[str]) -> tuple[float, float]:
    began = time.monotonic()
    return ended(subprocess.Popen(args, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True), began)


def served() -> tuple[float, float]:
    """CPU seconds with those of its end, wall seconds until it answers."""
    began = time.monotonic()
    args = [*DUO, "serve", "--port", "0"]
    with subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline().startswith("duo serve: ")
        wall = time.monotonic() - began
        child.terminate()
        return ended(child, began)[0], wall


def measured() -> Iterator[tuple[str, float, float | None]]:
    """Each case once: name, CPU seconds, wall seconds."""
    for name, args in CASES.items():
        yield (name, *run(args))
    yield (SERVED, *served())
    done = subprocess.run([*PYTHON, TWO], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
    first, second = json.loads(done.stdout)
    yield "the first Duo of a process, with a token", first, None
    yield "the second one", second, None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    found: dict[str, list[tuple[float, float | None]]] = {}
    for i in range(rounds + 1):
        for name, cpu, wall in measured():
            found.setdefault(name, [])
            if i:
                found[name].append((cpu, wall))
    print(f"Medians of {rounds}:\n\n| | CPU s | wall s |\n|---|---|---|")
    for name, values in found.items():
        walls = [w for _, w in values if w is not None]
        wall = f"{statistics.median(walls):.2f}" if walls else ""
        print(f"| {name} | {statistics.median(c for c, _ in values):.2f} | {wall} |")


if __name__ == "__main__":
    main()
