"""Loads models where a crash can be seen: in child processes, many loads in one as long as it lives."""

from __future__ import annotations

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


def load_all(cases: Iterable[tuple[list[Any], dict[str, Any]]]) -> Iterator[Outcome]:
    """What comes of Duo(*paths, **options) and a short text, for each case."""
    child: subprocess.Popen[bytes] | None = None
    try:
        for paths, options in cases:
            if child is None:
                child = subprocess.Popen(
                    [sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL, env=os.environ | {"GGML_NO_BACKTRACE": "1"},
                )  # fmt: skip
            assert child.stdin is not None
            assert child.stdout is not None
            child.stdin.write(json.dumps([[os.fspath(p) for p in paths], options]).encode() + b"\n")
            child.stdin.flush()
            ready, _, _ = select.select([child.stdout], [], [], HANG_S)
            line = child.stdout.readline() if ready else b""
            if line:
                yield Outcome(*json.loads(line))
                continue
            child.kill()
            code = child.wait(HANG_S)
            child = None
            yield Outcome("crashed", f"exit code {code}") if ready else Outcome("hung", "")
    finally:
        if child is not None:
            child.communicate(timeout=HANG_S)


def load(*paths: Any, **options: Any) -> Outcome:
    return next(load_all([(list(paths), options)]))


def assert_harmless(outcome: Outcome, case: str) -> None:
    """It worked, or it was refused in one sentence."""
    assert outcome.what in ("loaded", "refused"), f"{case}: {outcome}"
    if outcome.what == "refused":
        assert "\n" not in outcome.text, case
        assert len(outcome.text) > 20, case
