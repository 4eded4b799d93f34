"""A machine whose kernels fail: faulty_ggml.cpp before libggml, in child processes of the tests."""

import fcntl
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from conftest import HANG_S

from duo._libs import library_dir

SOURCE = Path(__file__).with_name("faulty_ggml.cpp")


@dataclass
class Machine:
    """Runs programs there. `faults` as FAULTY of faulty_ggml.cpp; `cache`: what is remembered between them."""

    library: Path
    cache: Path
    faults: str = ""
    more: dict[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        here = {"LD_PRELOAD": str(self.library), "FAULTY": self.faults, "XDG_CACHE_HOME": str(self.cache)}
        return os.environ | here | self.more

    @property
    def record(self) -> Path:
        return self.cache / "duo" / "guard.json"

    def duo(self, *args: str | Path) -> "subprocess.CompletedProcess[str]":
        return self.python("-m", "duo", *args)

    def python(self, *args: str | Path) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, *map(str, args)],
            env=self.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=HANG_S, check=False,
        )  # fmt: skip


def built(folder: Path) -> Path:
    """The stand-in, compiled, once for all processes that share the folder. Skips where it cannot be had."""
    compiler = os.environ.get("CXX") or shutil.which("c++")
    if sys.platform != "linux" or compiler is None:
        pytest.skip("the stand-in needs Linux and a C++ compiler")
    library = folder / "faulty_ggml.so"
    include = library_dir().parents[1] / "include"
    command = [
        compiler,
        "-std=c++17",
        "-O1",
        "-shared",
        "-fPIC",
        f"-I{include}",
        str(SOURCE),
        "-o",
        str(library),
        "-ldl",
    ]
    with (folder / "faulty_ggml.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not library.exists():
            subprocess.run(command, check=True)
    return library
