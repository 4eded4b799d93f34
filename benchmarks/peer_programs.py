"""The programs that run_peers.py compares, each in a process of its own: an order a line, an answer a line.

    python -m benchmarks.peer_programs JOB     (run_peers.py starts it; JOB is an object of JSON)

It imports the package that it measures and numpy, nothing else: ik_llama.cpp may have an interpreter of its own.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

N_CTX = 1024
TEXT_CTX = 512

Row = npt.NDArray[np.float32]
Job = dict[str, Any]  # program, path, cores


class Program(Protocol):
    """A loaded model."""

    about: dict[str, Any]

    def decode(self, tokens: Sequence[int], pos: int, *, only_last: bool) -> float:
        """A pass at this position; milliseconds until its logits are there. What followed the position is forgotten."""

    def last_row(self) -> Row:
        """Logits of the last pass."""

    def write(self, prompt: list[int], n: int) -> tuple[list[int], float]:
        """n tokens, greedy, without an end; and tokens/s after the first."""


class Library:
    """llama.cpp or ik_llama.cpp, by the functions that their Python packages have in common."""

    def __init__(
        self, calls: Any, context: Any, forget: Callable[[int], object], ends: list[bool], about: dict[str, Any]
    ) -> None:
        """forget: what follows a position. ends: whether each token of the vocabulary ends a text."""
        self.about = about
        self._calls, self._context, self._forget = calls, context, forget
        self._ends = np.array(ends)
        self._batch = calls.llama_batch_init(N_CTX, 0, 1)
        self._n_rows = 0

    def decode(self, tokens: Sequence[int], pos: int, *, only_last: bool = False) -> float:
        batch = self._batch
        batch.n_tokens = self._n_rows = len(tokens)
        for i, token in enumerate(tokens):
            batch.token[i], batch.pos[i] = token, pos + i
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, 0
            batch.logits[i] = not only_last or i + 1 == len(tokens)
        self._forget(pos)
        start = time.perf_counter()
        failed = self._calls.llama_decode(self._context, batch)
        self._calls.llama_get_logits_ith(self._context, len(tokens) - 1)  # waits until they are there
        ms = 1000 * (time.perf_counter() - start)
        if failed:
            raise SystemExit(f"a pass of {len(tokens)} tokens failed with code {failed}")
        return ms

    def last_row(self) -> Row:
        at = self._calls.llama_get_logits_ith(self._context, self._n_rows - 1)
        return np.array(np.ctypeslib.as_array(at, (len(self._ends),)), np.float32)

    def write(self, prompt: list[int], n: int) -> tuple[list[int], float]:
        self.decode(prompt, 0, only_last=True)
        out = [self._best()]
        start = time.perf_counter()
        while len(out) < n:
            self.decode(out[-1:], len(prompt) + len(out) - 1)
            out.append(self._best())
        return out, (n - 1) / (time.perf_counter() - start)

    def _best(self) -> int:
        row = self.last_row()
        row[self._ends] = -np.inf
        return int(row.argmax())


def llama_cpp_library(job: Job) -> Library:
    """llama.cpp with stock kernels and the defaults of its library, from llama-cpp-python."""
    import llama_cpp as calls

    calls.llama_backend_init()
    model_params, context_params = calls.llama_model_default_params(), calls.llama_context_default_params()
    model_params.n_gpu_layers = 0
    model, context = _loaded(calls, model_params, context_params, job)
    memory, vocabulary = calls.llama_get_memory(context), calls.llama_model_get_vocab(model)
    ends = [calls.llama_vocab_is_eog(vocabulary, t) for t in range(calls.llama_vocab_n_tokens(vocabulary))]
    about = {
        "llama-cpp-python": version("llama-cpp-python"),
        "compiled for": _features(calls.llama_print_system_info()),
        "use_extra_bufts": bool(model_params.use_extra_bufts),
        "flash_attn_type": int(context_params.flash_attn_type),
    }
    return Library(calls, context, lambda pos: calls.llama_memory_seq_rm(memory, 0, pos, -1), ends, about)


def ik_library(job: Job, *, repacked: bool = False, flash: bool = True) -> Library:
    """ik_llama.cpp with the defaults of its library. repacked: weights are reordered when they are loaded (-rtr).
    flash: flash attention, a default of the library that the package's own class turns off without AVX-VNNI."""
    import ctypes

    from ik_llama_cpp import _ctypes_api as calls
    from ik_llama_cpp._lib_loader import load_shared_library

    library = load_shared_library()
    library.llama_kv_cache_seq_rm.argtypes = [ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32, ctypes.c_int32]
    library.llama_kv_cache_seq_rm.restype = ctypes.c_bool
    library.llama_print_system_info.restype = ctypes.c_char_p
    calls.llama_backend_init()
    model_params, context_params = calls.llama_model_default_params(), calls.llama_context_default_params()
    if repacked:
        model_params.repack_tensors, model_params.use_mmap = True, False  # -rtr sets both
    model_params.flash_attn = context_params.flash_attn = flash
    model, context = _loaded(calls, model_params, context_params, job)
    n_vocab = calls.llama_vocab_n_tokens(calls.llama_model_get_vocab(model))
    ends = [calls.llama_token_is_eog(model, t) for t in range(n_vocab)]
    shown = ("flash_attn", "fused_moe_up_gate", "fused_up_gate", "fused_mmad", "rope_cache", "graph_reuse")
    about = {
        "ik-llama-cpp-python": version("ik-llama-cpp-python"),
        "compiled for": _features(library.llama_print_system_info()),
        **{name: getattr(model_params, name) for name in ("repack_tensors", "merge_qkv", "merge_up_gate_exps")},
        **{name: getattr(context_params, name) for name in shown},
    }
    return Library(calls, context, lambda pos: library.llama_kv_cache_seq_rm(context, 0, pos, -1), ends, about)


def _loaded(calls: Any, model_params: Any, context_params: Any, job: Job) -> tuple[Any, Any]:
    """The model and a context; both programs' structures have these fields."""
    context_params.n_ctx = N_CTX
    context_params.n_threads = context_params.n_threads_batch = len(job["cores"])
    model = calls.llama_model_load_from_file(os.fsencode(job["path"]), model_params)
    context = calls.llama_init_from_model(model, context_params) if model else None
    if not context:
        raise SystemExit("the model could not be loaded")
    return model, context


def _features(told: bytes) -> list[str]:
    """Names of llama.cpp's line of features, such as "AVX2 = 1 | AVX512 = 0 |"."""
    pairs = (word.split(":")[-1].split("=") for word in told.decode().split("|") if "=" in word)
    return [name.strip() for name, value in pairs if value.strip() == "1"]


class Duo:
    """duo with its own kernels: passes as its target's, and texts as its users get them."""

    def __init__(self, job: Job, *, strict: bool = False) -> None:
        """strict: bits are those of one row also where stock kernels compute a part, as a mixture's routers."""
        from benchmarks import models

        from duo import _core
        from duo.benchmark import doctor
        from duo.placement import kernels

        self._path, self._n_threads = job["path"], len(job["cores"])
        types = [t for t in _core.cpu_types(os.fsencode(self._path), 0) if t in _core.kernel_types()]
        for weight_type in types:
            kernels.speed_of(weight_type, self._n_threads)
        kernels.read_ahead(types, self._n_threads)
        options = doctor.options(self._path, self._n_threads, _core.kernel_types(), N_CTX)
        options.strict = self._strict = strict
        self._probe: _core.Probe | None = _core.Probe(options)
        self._duo: Any = None
        about = {name: getattr(self._probe, name) for name in ("same_bits", "n_duo_products", "n_cpu_products")}
        self.about: dict[str, Any] = {**models.versions(), **about}

    @property
    def probe(self) -> Any:
        assert self._probe is not None  # passes come before texts
        return self._probe

    def tokenize(self, text: str) -> list[int]:
        found: list[int] = self.probe.tokenize(text)
        return found

    def decode(self, tokens: Sequence[int], pos: int, *, only_last: bool = False) -> float:
        us: int = self.probe.decode(tokens, pos, only_last=only_last)
        return us / 1000

    def last_row(self) -> Row:
        row: Row = self.probe.logits()[-1]
        return row

    def write(self, prompt: list[int], n: int) -> tuple[list[int], float]:
        import duo

        if self._duo is None:
            self._probe = None
            how: dict[str, Any] = {
                "cpu_kernels": "duo",
                "spec_type": ["none"],
                "n_ctx": TEXT_CTX,
                "strict": self._strict,
            }
            self._duo = duo.Duo(self._path, n_threads=self._n_threads, **how)
        how = {"temperature": 0, "max_tokens": n, "ignore_eos": True, "mode": "plain", "cache_prompt": False}
        found = self._duo.generate(prompt, **how)
        return list(found.tokens), found.timings["predicted_per_second"]


PROGRAMS: dict[str, Callable[[Job], Program]] = {
    "llama.cpp": llama_cpp_library,
    "ik_llama.cpp": ik_library,
    "ik_llama.cpp -rtr": lambda job: ik_library(job, repacked=True),
    "ik_llama.cpp -no-fa": lambda job: ik_library(job, flash=False),
    "duo": Duo,
    "duo --strict": lambda job: Duo(job, strict=True),
}
USUAL = ["llama.cpp", "ik_llama.cpp", "ik_llama.cpp -rtr", "duo"]


class Worker:
    """Carries out the orders of run_peers.py. Keeps the context of the passes in the cache from order to order."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._context: list[int] = []

    def answer(self, order: dict[str, Any]) -> Any:
        work = {"passes": self.passes, "prompt": self.prompt, "row": self.row, "text": self._program.write}
        if order["do"] == "tokenize":
            assert isinstance(self._program, Duo)
            return self._program.tokenize(order["text"])
        return work[order.pop("do")](**order)

    def _read(self, context: list[int]) -> None:
        if context != self._context:
            self._program.decode(context, 0, only_last=True)
            self._context = context

    def passes(self, context: list[int], tokens: list[int], n: int) -> list[float]:
        """Milliseconds of n passes over the tokens, after one that is not counted."""
        self._read(context)
        return [self._program.decode(tokens, len(context), only_last=False) for _ in range(1 + n)][1:]

    def prompt(self, tokens: list[int]) -> float:
        self._context = []
        return self._program.decode(tokens, 0, only_last=True)

    def row(self, context: list[int], tokens: list[int], width: int, file: str) -> None:
        """Evaluates the tokens `width` at a time, and writes the logits of the last one to a file."""
        self._context = []
        self._read(context)
        for i in range(0, len(tokens), width):
            self._program.decode(tokens[i : i + width], len(context) + i, only_last=False)
        Path(file).write_bytes(self._program.last_row().tobytes())


def main() -> None:
    job = json.loads(sys.argv[1])
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print is no answer
    os.sched_setaffinity(0, job["cores"])
    program = PROGRAMS[job["program"]](job)
    worker = Worker(program)
    print(json.dumps(program.about), file=answers)
    for line in sys.stdin:
        print(json.dumps(worker.answer(json.loads(line))), file=answers)


if __name__ == "__main__":
    main()
