"""Loads models where a crash can be seen: in a child process, which all tests use as long as it lives."""

from __future__ import annotations

import atexit
import json
import os
import select
import subprocess
import sys
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from conftest import HANG_S

# One line in: the paths. One line out: what came of it.
CHILD = """
import json, sys
import duo
for line in sys.stdin:
    paths, options = json.loads(line)
    try:
        with duo.Duo(*paths, **{"n_ctx": 64, **options}) as d:
            repr(d), d.target.description, d.target.meta("general.name")
            r = d.generate("Once upon a time", max_tokens=8, temperature=0)
        answer = ["loaded", r.text]
    except duo.DuoError as e:
        answer = ["refused", str(e)]
    except BaseException as e:
        answer = ["wrong exception", repr(e)]
    print(json.dumps(answer), flush=True)
"""


class Outcome(NamedTuple):
    what: str  # "loaded", "refused", "wrong exception", "crashed", "hung"
    text: str  # generated; or the error's sentence, or how the child ended


_living: list[subprocess.Popen[bytes]] = []  # one at most: to start takes as long as many loads


def _child() -> subprocess.Popen[bytes]:
    if not _living:
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, env=os.environ | {"GGML_NO_BACKTRACE": "1"},
        )  # fmt: skip
        _living.append(child)
    return _living[0]


@atexit.register
def _end() -> int:
    """Its exit code."""
    code = 0
    while _living:
        child = _living.pop()
        child.kill()
        child.communicate(timeout=HANG_S)
        code = child.returncode
    return code


def _outcome(paths: list[Any], options: dict[str, Any]) -> Outcome:
    child = _child()
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        child.stdin.write(json.dumps([[os.fspath(p) for p in paths], options]).encode() + b"\n")
        child.stdin.flush()
    except BrokenPipeError:
        return Outcome("crashed", f"exit code {_end()}, after the case before this one")
    ready, _, _ = select.select([child.stdout], [], [], HANG_S)
    if line := child.stdout.readline() if ready else b"":
        return Outcome(*json.loads(line))
    code = _end()
    return Outcome("crashed", f"exit code {code}") if ready else Outcome("hung", "")


def load_all(cases: Iterable[tuple[list[Any], dict[str, Any]]]) -> Iterator[Outcome]:
    """What comes of Duo(*paths, **options) and a short text, for each case."""
    for paths, options in cases:
        try:
            outcome = _outcome(paths, options)
        except BaseException:  # its answer may still come
            _end()
            raise
        yield outcome


def load(*paths: Any, **options: Any) -> Outcome:
    return next(load_all([(list(paths), options)]))


def assert_harmless(outcome: Outcome, case: str) -> None:
    """It worked, or it was refused in one sentence."""
    assert outcome.what in ("loaded", "refused"), f"{case}: {outcome}"
    if outcome.what == "refused":
        assert "\n" not in outcome.text, case
        assert len(outcome.text) > 20, case
