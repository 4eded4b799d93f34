"""Writes a draft's file with llama_model_quantize (llama.cpp, src/llama-quant.cpp), in a child process."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from gguf import GGMLQuantizationType

from duo._libs import libllama
from duo.errors import BadValueError, DoesNotFitError, DuoError
from duo.make_draft.quantize_child import Request
from duo.make_draft.recipe import EXPERTS, SAME, DraftRecipe, TargetSource, file_type
from duo.support.wording import gigabytes, one_line

_DONE = re.compile(r"\[ *(\d+)/ *(\d+)\] ")
_SIZE = re.compile(r"quant size +=  *([0-9.]+) MiB")
_WHY = re.compile(r"failed to quantize: (.*)")
NEEDS_MATRIX = ("imatrix", "importance matrix")

Progress = Callable[[int, int], None]  # tensors done, all tensors


class NeedsMatrix(DuoError):  # noqa: N818 - says what happened
    """The type has too few bits for weights that nothing weighs."""


class Quantizer:
    """Makes drafts' files from a target."""

    def __init__(self, source: TargetSource, n_threads: int) -> None:
        self._source, self._n_threads = source, n_threads

    def size_of(self, recipe: DraftRecipe) -> int:
        """Bytes of the draft's weights, to 1%. Writes nothing. Raises DuoError: it cannot be made."""
        log = self._run(self._request(recipe, Path(os.devnull), dry_run=True), lambda _, __: None)
        match = _SIZE.search(log)
        if match is None:
            raise DuoError("llama.cpp did not say the size of the draft; see whether another version of it is loaded")
        if "will require an imatrix" in log:
            raise NeedsMatrix(f"{recipe.type} needs an importance matrix, which duo does not make")
        return int(float(match[1]) * (1 << 20))

    def write(self, recipe: DraftRecipe, out: Path, progress: Progress = lambda _, __: None) -> None:
        """Raises DuoError: NeedsMatrix, DoesNotFitError (the disk is full), BadValueError (the target's file)."""
        check_room(out, self.size_of(recipe))
        try:
            self._run(self._request(recipe, out, dry_run=False), progress)
        except BaseException:
            out.unlink(missing_ok=True)
            raise

    def _request(self, recipe: DraftRecipe, out: Path, *, dry_run: bool) -> Request:
        types = []
        if recipe.experts_type:
            types.append((EXPERTS, int(GGMLQuantizationType[recipe.experts_type.upper()])))
        return {
            "source": self._source.path,
            "out": os.fspath(out),
            "ftype": 0 if recipe.type == SAME else file_type(recipe.type),
            "only_copy": recipe.type == SAME,
            "dry_run": dry_run,
            "n_threads": self._n_threads,
            "prune": sorted({*recipe.left_out, *self._source.mtp_layers}),
            "numbers": self._source.numbers(recipe),
            "types": types,
        }

    def _run(self, request: Request, progress: Progress) -> str:
        """The log. Raises DuoError."""
        child = Path(__file__).with_name("quantize_child.py")
        command = [sys.executable, "-I", "-S", str(child), str(libllama()), json.dumps(request)]
        lines = []
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=_environment()
            )
        except OSError as e:
            raise DuoError(f"no child process can be started ({e.strerror}); free some memory") from None
        with process:
            try:
                assert process.stderr is not None
                for raw in process.stderr:
                    lines.append(line := raw.decode("utf-8", "replace"))
                    if match := _DONE.search(line):
                        progress(int(match[1]), int(match[2]))
                code = process.wait()
            except BaseException:
                process.kill()
                raise
        log = "".join(lines)
        if code != 0:
            raise self._error(log, code, Path(request["out"]))
        return log

    def _error(self, log: str, code: int, out: Path) -> DuoError:
        match = _WHY.search(log)
        last = (log.strip().splitlines() or [f"its process ended with code {code}"])[-1]
        why = one_line(match[1] if match else last if code > 0 else f"its process ended with signal {-code}", 200)
        if any(words in why.lower() for words in NEEDS_MATRIX):
            return NeedsMatrix("it needs an importance matrix, which duo does not make")
        if "basic_ios" in why or "iostream" in why:  # std::ios_base::failure of the only file that is written
            return DoesNotFitError(
                f"{out.parent.parent}: the disk is full, so a draft could not be written; free some space or choose "
                "another disk (-o)"
            )
        return BadValueError(
            f"{self._source.path}: llama.cpp cannot make a draft of it ({why}); give another target or --types"
        )


def check_room(path: Path, n_bytes: int) -> None:
    """Raises DoesNotFitError: the disk has no room for a file of this size. The folder of `path` is beside the
    draft."""
    if (free := shutil.disk_usage(path.parent).free) < n_bytes:
        raise DoesNotFitError(
            f"{path.parent.parent}: {gigabytes(n_bytes)} are needed to try a draft and {gigabytes(free)} are free; "
            "free some space or choose another disk (-o)"
        )


def _environment() -> dict[str, str]:
    # No debugger after an abort, and no time spent on GPUs.
    hidden = dict.fromkeys(("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"), "")
    return {**os.environ, **hidden, "GGML_NO_BACKTRACE": "1"}
