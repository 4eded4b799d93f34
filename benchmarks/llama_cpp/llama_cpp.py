"""llama.cpp's own loops as subprocesses: plain decoding, speculation by turns, and several texts at once.

    plain = Plain("target.gguf", cores=[0])
    turns = Speculative("target.gguf", "draft.gguf", cores=[0], n_draft=5)
    with Loop(plain) as a, Loop(turns) as b:
        for prompt in prompts:
            print(a.run(prompt).tokens_per_s, b.run(prompt).tokens_per_s)

Import it as `benchmarks.llama_cpp.llama_cpp`, from the root of the repository: with this folder on the path,
`import llama_cpp` would find this file in place of llama-cpp-python.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True, slots=True)
class Run:
    """What one prompt gave. Times are wall-clock seconds."""

    tokens: list[int]  # ids, without an end-of-generation token
    n_prompt: int
    prompt_s: float  # evaluating the prompt (speculation: on both models, one after the other)
    first_s: float  # from the start to the first known token
    generation_s: float  # all that came after the prompt
    n_first: int  # tokens known at first_s
    n_passes: int  # passes of the target after the prompt
    n_drafted: int
    n_accepted: int

    @property
    def total_s(self) -> float:
        return self.prompt_s + self.generation_s

    @property
    def tokens_per_s(self) -> float:
        """Generation rate after the first pass: the two loops differ in whether that one belongs to the prompt."""
        rest = self.total_s - self.first_s
        return (len(self.tokens) - self.n_first) / rest if rest > 0 else 0.0

    @property
    def acceptance(self) -> float:
        """Accepted of drafted tokens, as llama.cpp counts it."""
        return self.n_accepted / self.n_drafted if self.n_drafted else 0.0


@dataclass(frozen=True)
class Plain:
    """The target alone, as in llama.cpp's examples/simple."""

    model: str | Path
    _: KW_ONLY
    n_predict: int = 128
    threads: int = 1
    cores: Sequence[int] | None = None  # pin to these; None leaves it to the system
    ignore_eos: bool = False  # end-of-generation tokens are never chosen
    temp: float = 0.0  # 0 is greedy; else llama.cpp's default filters (top-k 40, top-p 0.95, min-p 0.05) come first
    seed: int = 1
    n_ctx: int = 0  # 0 is what the model was trained with
    n_gpu_layers: int = 0
    devices: str | None = None  # "CUDA0,RPC0"; None is llama.cpp's choice, or the CPU alone without GPU layers
    omp_passive: bool = False  # idle OpenMP threads sleep at once; else libgomp's default, a short spin

    program: ClassVar[str] = "plain_loop"

    def arguments(self) -> list[str]:
        args = [*_placement(self.model, self.threads, self.n_gpu_layers, self.devices, "")]
        args += ["-n", str(self.n_predict), "-c", str(self.n_ctx)]
        if self.temp > 0:
            args += ["--temp", str(self.temp), "--seed", str(self.seed)]
        return [*args, "--ignore-eos"] if self.ignore_eos else args

    def all_cores(self) -> list[int]:
        return sorted(self.cores or [])


@dataclass(frozen=True)
class Speculative(Plain):
    """Target and draft by turns in one thread, as in llama.cpp's examples/speculative-simple."""

    draft: str | Path
    _: KW_ONLY
    n_draft: int = 3  # longest draft (llama.cpp's default)
    p_min: float = 0.0  # stop drafting at a less probable token (llama.cpp's default)
    threads_draft: int | None = None  # None is as the target
    cores_draft: Sequence[int] | None = None  # None is as the target; else the thread moves at each turn
    n_gpu_layers_draft: int = 0
    devices_draft: str | None = None

    program: ClassVar[str] = "speculative_loop"

    def arguments(self) -> list[str]:
        threads = self.threads_draft or self.threads
        args = super().arguments()
        args += _placement(self.draft, threads, self.n_gpu_layers_draft, self.devices_draft, "d")
        args += ["--draft-max", str(self.n_draft), "--draft-p-min", str(self.p_min)]
        if self.cores_draft is not None:
            if self.cores is None:
                raise ValueError("cores_draft needs cores, or the target would run on the draft's cores too")
            args += ["-cores", _join(self.cores), "-coresd", _join(self.cores_draft)]
        return args

    def all_cores(self) -> list[int]:
        return sorted({*(self.cores or []), *(self.cores_draft or [])})


@dataclass(frozen=True)
class Mtp(Plain):
    """The target and its MTP layers by turns, as in the same example."""

    _: KW_ONLY
    n_draft: int = 3  # longest draft (llama.cpp's default)

    program: ClassVar[str] = "speculative_loop"

    def arguments(self) -> list[str]:
        return [*super().arguments(), "--mtp", "--draft-max", str(self.n_draft)]


@dataclass(frozen=True)
class Slots(Plain):
    """Several texts at once, in the order of llama-server's loop; with a draft, batched speculation by turns."""

    _: KW_ONLY
    slots: int = 1
    draft: str | Path | None = None  # None: plain decoding
    n_draft: int = 3  # longest draft (llama.cpp's default)

    program: ClassVar[str] = "slots_loop"

    def arguments(self) -> list[str]:
        args = [*super().arguments(), "--slots", str(self.slots)]
        if self.draft is None:
            return args
        return [*args, *_placement(self.draft, self.threads, 0, None, "d"), "--draft-max", str(self.n_draft)]


class Loop:
    """One process with its models loaded. Waiting for a prompt it sleeps, so that several can be interleaved."""

    def __init__(self, options: Plain) -> None:
        command = [str(build() / options.program), *options.arguments()]
        if cores := options.all_cores():
            if not (taskset := shutil.which("taskset")):
                raise RuntimeError("pinning to cores needs the program taskset (util-linux)")
            command = [taskset, "--cpu-list", _join(cores), *command]
        environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
        if options.omp_passive:
            environment["OMP_WAIT_POLICY"] = "passive"

        self._folder = tempfile.TemporaryDirectory(prefix="llama-cpp-loop-")
        self._errors = Path(self._folder.name, "errors.txt")
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment
            )

    def run(self, prompt: str) -> Run:
        """Generate after one prompt."""
        return _parse(self._ask([prompt]))

    def run_all(self, prompts: Sequence[str]) -> tuple[float, list[Run]]:
        """Generate after all prompts, as many at once as `Slots` says: seconds of all of it, and each text."""
        found = self._ask(prompts)
        return found["seconds"], [_parse(text) for text in found["texts"]]

    def _ask(self, prompts: Sequence[str]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        files = [Path(self._folder.name, f"{i}.txt") for i in range(len(prompts))]
        for file, prompt in zip(files, prompts, strict=True):
            file.write_text(prompt, encoding="utf-8", newline="")
        try:
            self._process.stdin.write("\t".join(map(str, files)) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            code = self._process.wait()
            reason = self._errors.read_text(encoding="utf-8", errors="replace").strip()
            raise RuntimeError(reason or f"llama.cpp's loop ended with exit status {code}")
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> None:
        """End the process and free its models."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()
        self._folder.cleanup()

    def __enter__(self) -> Loop:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def run(options: Plain, prompts: Iterable[str]) -> list[Run]:
    """Generate after each prompt, in one process."""
    with Loop(options) as loop:
        return [loop.run(prompt) for prompt in prompts]


def run_plain(model: str | Path, prompts: Iterable[str], **options: Any) -> list[Run]:
    """`run` with the fields of `Plain` as keywords."""
    return run(Plain(model, **options), prompts)


def run_speculative(model: str | Path, draft: str | Path, prompts: Iterable[str], **options: Any) -> list[Run]:
    """`run` with the fields of `Speculative` as keywords."""
    return run(Speculative(model, draft, **options), prompts)


@functools.cache
def build() -> Path:
    """Build the programs against the llama-cpp-python of this interpreter; the folder that they are in."""
    done = subprocess.run(
        [str(HERE / "build.sh")],
        env={**os.environ, "PYTHON": sys.executable},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"llama.cpp's loops could not be built:\n{done.stdout}")
    return HERE / "build"


def _placement(model: str | Path, threads: int, n_gpu_layers: int, devices: str | None, suffix: str) -> list[str]:
    args = [f"-m{suffix}", str(model), f"-t{suffix}", str(threads), f"-ngl{suffix}", str(n_gpu_layers)]
    if devices is None and n_gpu_layers == 0:
        devices = "none"
    return args if devices is None else [*args, f"-dev{suffix}", devices]


def _join(cores: Sequence[int]) -> str:
    return ",".join(str(core) for core in cores)


def _parse(line: dict[str, Any]) -> Run:
    return Run(
        tokens=line["tokens"],
        n_prompt=line["n_prompt"],
        prompt_s=line["prompt_ms"] / 1e3,
        first_s=line["first_ms"] / 1e3,
        generation_s=line["generation_ms"] / 1e3,
        n_first=line["n_first"],
        n_passes=line["n_passes"],
        n_drafted=line["n_drafted"],
        n_accepted=line["n_accepted"],
    )
