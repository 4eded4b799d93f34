"""A file with a prompt on each line, and a line of JSON for each of its texts."""

from __future__ import annotations

import codecs
import json
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from duo.cli.progress import progress
from duo.errors import BadValueError, CancelledError, DuoError
from duo.generation.many import as_they_end
from duo.support.json_lines import values
from duo.support.wording import plural

if TYPE_CHECKING:
    from duo.generation.result import Result
    from duo.model import Duo

LINE = '{"prompt": "..."} or "..." on each line'


def read_prompts(file: Path) -> list[str]:
    """The prompts of a .jsonl file. A line is a string, or an object with `prompt` (or `turns`, whose first counts).
    Raises BadValueError."""
    prompts = []
    for _, where, value in values(file, "prompt file", LINE):
        if isinstance(value, dict):
            turns = value.get("turns")
            value = value.get("prompt", turns[0] if isinstance(turns, list) and turns else None)
        if not isinstance(value, str) or not value:
            raise BadValueError(f"{where} has no prompt; write {LINE}")
        prompts.append(value)
    if not prompts:
        raise BadValueError(f"{file} has no prompts; write {LINE}")
    return prompts


def as_line(index: int, prompt: str, r: Result | DuoError, *, escaped: bool) -> str:
    """A text as one line of JSON, or why there is none. escaped: the line is ASCII."""
    line: dict[str, Any] = {"index": index, "prompt": prompt}
    if isinstance(r, DuoError):
        line |= {"error": str(r), "code": r.code}
    else:
        line |= {"text": r.text, "finish_reason": r.finish_reason, "timings": r.timings}
    return json.dumps(line, ensure_ascii=escaped)


def _is_utf8(out: TextIO) -> bool:
    """Whether it takes every character."""
    return out.encoding is None or codecs.lookup(out.encoding).name == "utf-8"


def write_all(d: Duo, prompts: list[str], options: dict[str, Any], out: TextIO) -> None:
    """Writes the lines in the prompts' order, each as soon as it and those before it are there.

    A text that fails stops no other one. Ctrl-C closes `d`, and writes what has ended by then. Raises BadValueError at
    the end (some failed), and CancelledError.
    """

    def write(prompt: str) -> Result | DuoError:
        try:
            return d.generate(prompt, **options)
        except CancelledError:
            raise
        except DuoError as e:
            return e

    def stop() -> None:
        with suppress(DuoError):  # nobody reads the trace of texts that were stopped
            d.close()

    ready: dict[int, Result | DuoError] = {}
    escaped = not _is_utf8(out)

    def put(i: int) -> None:
        out.write(as_line(i, prompts[i], ready.pop(i), escaped=escaped) + "\n")
        out.flush()

    n_written = n_done = n_failed = 0
    try:
        with progress("count") as show, closing(as_they_end(write, prompts, d.session.turns.n, stop)) as texts:
            for i, result in texts:
                ready[i] = result
                n_done += 1
                n_failed += isinstance(result, DuoError)
                while n_written in ready:
                    put(n_written)
                    n_written += 1
                show("texts", n_done, len(prompts))
    except KeyboardInterrupt:
        for i in sorted(ready):  # they waited for one before them
            put(i)
        raise
    if n_failed > 0:
        raise BadValueError(f"{n_failed} of {plural(len(prompts), 'text')} failed; their lines say why")
