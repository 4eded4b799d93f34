"""How long it takes from a wheel to the first text, and what it takes on the disk.

    python benchmarks/run_wheel.py dist/duo_llama-0.2.0-cp311-*.whl

Each round has a new environment and an empty cache, so the first text includes the trial of the CPU's kernels. The
packages that duo needs are downloaded before. pip compiles all modules to bytecode, as it does by default.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Mapping
from pathlib import Path

from duo.placement.kernels import processor

TEXT = ["-p", "Once upon a time", "-n", "32", "--temp", "0"]
PIP = ["-m", "pip", "--disable-pip-version-check", "-q"]


def seconds(command: list[str | Path], env: Mapping[str, str]) -> float:
    began = time.monotonic()
    subprocess.run(command, check=True, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.monotonic() - began


def megabytes(folder: Path) -> float:
    return sum(f.stat().st_size for f in folder.rglob("*") if f.is_file()) / 1e6


def one_round(wheel: Path, wheelhouse: Path, folder: Path) -> dict[str, float]:
    venv.create(folder, with_pip=True)
    program = folder / "bin"
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "DUO_"))}
    env["XDG_CACHE_HOME"] = str(folder / "cache")
    install = [program / "python", *PIP, "install", "--no-index", "--find-links", wheelhouse, wheel]
    took = {"pip install": seconds(install, env)}
    took["first text"] = seconds([program / "duo", *TEXT], env)
    took["second text"] = seconds([program / "duo", *TEXT], env)
    took["import duo, load the libraries"] = seconds([program / "python", "-c", "import duo; duo._core"], env)
    site = next(folder.rglob("site-packages"))
    took["duo on the disk, MB"] = megabytes(site / "duo") + megabytes(site / "duo_llama.libs")
    took["everything on the disk, MB"] = megabytes(site)
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subprocess.run([sys.executable, *PIP, "download", "-d", folder / "wheelhouse", args.wheel], check=True)
        found = [one_round(args.wheel, folder / "wheelhouse", folder / str(i)) for i in range(args.rounds)]
        download = megabytes(folder / "wheelhouse")
    print(f"{processor()}, {os.cpu_count()} cores, Python {sys.version.split()[0]}\n")
    print(f"| what | median of {args.rounds} |\n|---|---|")
    print(f"| the wheel, MB | {args.wheel.stat().st_size / 1e6:.1f} |")
    print(f"| download of everything, MB | {download:.1f} |")
    for what in found[0]:
        text, unit = ("{:.1f}", "") if what.endswith("MB") else ("{:.2f}", " s")
        print(f"| {what} | {text.format(statistics.median(r[what] for r in found))}{unit} |")


if __name__ == "__main__":
    main()
