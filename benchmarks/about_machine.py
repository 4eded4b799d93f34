"""What a report says of the machine and of the programs on it."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.run_kernels import read_speed

import duo
from duo import _core
from duo.placement.cpus import core_cpus
from duo.placement.kernels import processor

ROOT = Path(__file__).parents[1]
FLAGS = ("avx2", "f16c", "avx_vnni", "avx512f", "avx512vnni", "avx512_vnni", "avx512_bf16", "amx_tile", "amx_int8",
         "asimddp", "i8mm", "sve")  # fmt: skip
READ_BYTES = 600_000_000


def git(*args: str) -> str:
    done = subprocess.run(["git", "-C", str(ROOT), *args], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""


def commit() -> str:
    """The commit of this tree; "(changed)" follows if a file that is measured or measures differs from it."""
    found = git("rev-parse", "--short=10", "HEAD") or "unknown"
    changed = git(
        "status", "--porcelain", "--untracked-files=no", "--", "src", "csrc", "benchmarks/*.py", "CMakeLists.txt"
    )
    return found + (" (changed)" if changed else "")


def installed_differs() -> list[str]:
    """Python files of this tree that the installed duo does not have in this form."""
    here, there = ROOT / "src/duo", Path(duo.__file__).parent
    files = (f.relative_to(here) for f in sorted(here.rglob("*.py")))
    return [str(f) for f in files if not (there / f).exists() or (there / f).read_bytes() != (here / f).read_bytes()]


def flags(cpuinfo: Path = Path("/proc/cpuinfo")) -> list[str]:
    try:
        words = next(
            line for line in cpuinfo.read_text().splitlines() if line.lower().startswith(("flags", "features"))
        )
    except (OSError, StopIteration):
        return []
    return [f for f in FLAGS if f in words.split()]


def memory_gb() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9


def about(work: Path) -> dict[str, Any]:
    """For the head of a report. Reads memory for some seconds."""
    cpus = core_cpus()
    work.mkdir(parents=True, exist_ok=True)
    speeds = {str(len(on)): read_speed(work, READ_BYTES, on)["best"] / 1e9 for on in (cpus[:1], cpus)}
    return {
        "processor": processor(),
        "cores": len(cpus),
        "flags": flags(),
        "memory_gb": round(memory_gb(), 1),
        "read_gb_per_s": {n: round(v, 1) for n, v in speeds.items()},  # by the number of cores
        "system": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "duo": duo.__version__,
        "kernels": _core.kernels()[0] or _core.kernels()[1],
        "llama_cpp_python": version("llama-cpp-python"),
        "llama_cpp_commit": _core.ggml_commit(),
        "python": sys.version.split()[0],
    }


def in_words(m: dict[str, Any]) -> list[str]:
    read = ", ".join(f"{v} GB/s by {n} core{'s' if n != '1' else ''}" for n, v in m["read_gb_per_s"].items())
    return [
        f"{m['processor']}, {m['cores']} cores ({', '.join(m['flags'])}), {m['memory_gb']:.0f} GB of memory "
        f"(read: {read})",
        f"{m['system']}; duo {m['duo']} with {m['kernels']} kernels, llama-cpp-python {m['llama_cpp_python']} "
        f"(llama.cpp {m['llama_cpp_commit']}), Python {m['python']}",
    ]
