"""A process of peer_programs.py, and the interpreter that runs it."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
ADVICE = "run `python -m venv ik && ik/bin/pip install ik-llama-cpp-python`, and give --ik ik/bin/python"
WAITS = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")


class EndedError(Exception):
    """A program's process has ended: why."""


@dataclass(frozen=True)
class Interpreter:
    """What runs a program: Python, and a folder of packages that it needs."""

    python: str = sys.executable
    packages: str = ""

    def environment(self) -> dict[str, str]:
        """Without what `import duo` has set in this process: each program's threads wait as its own users' do."""
        folders = [str(ROOT), self.packages, os.environ.get("PYTHONPATH", "")]
        own = {name: value for name, value in os.environ.items() if name not in WAITS}
        return own | {"PYTHONPATH": os.pathsep.join(filter(None, folders))}


def ik_interpreter(path: Path) -> Interpreter:
    """path: a Python interpreter, its environment, or a folder of packages."""
    own = path / "bin/python"
    if path.is_dir():
        found = Interpreter(str(own)) if own.exists() else Interpreter(packages=str(path.absolute()))
    else:
        found = Interpreter(str(path))
    command = [found.python, "-c", "import ik_llama_cpp"]
    try:
        done = subprocess.run(command, env=found.environment(), capture_output=True, text=True)
    except OSError as e:
        raise SystemExit(f"{path} is no Python interpreter ({e.strerror}); {ADVICE}") from None
    if done.returncode != 0:
        raise SystemExit(f"{path} cannot import ik_llama_cpp ({_last_line(done.stderr)}); {ADVICE}")
    return found


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["no message"])[-1]


class Peer:
    """A program's process."""

    def __init__(self, program: str, interpreter: Interpreter, path: Path, on: Sequence[int]) -> None:
        job = json.dumps({"program": program, "path": str(path.absolute()), "cores": list(on)})
        command = [interpreter.python, "-m", "benchmarks.peer_programs", job]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
        self._folder = tempfile.TemporaryDirectory(prefix="peer-")
        self._errors = Path(self._folder.name, "errors.txt")
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(command, env=interpreter.environment(), stderr=errors, **pipes)
        self.about: dict[str, Any] = self._answer()

    def ask(self, do: str, **order: Any) -> Any:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # _answer says why it ended
            self._process.stdin.write(json.dumps({"do": do, **order}) + "\n")
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        if line := self._process.stdout.readline():
            return json.loads(line)
        code = self._process.wait()
        raise EndedError(f"exit status {code}: {_last_line(self._errors.read_text('utf-8', 'replace'))}")

    def close(self) -> None:
        self._process.communicate()
        self._folder.cleanup()
