"""What the tests of `duo make-draft` share."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from conftest import EXACT

from duo.make_draft.candidates import DraftSearch
from duo.make_draft.make import DraftRequest
from duo.make_draft.measure import Bench
from duo.make_draft.quantize import Quantizer
from duo.make_draft.recipe import TargetSource
from duo.models.demo import demo_pair
from duo.models.header import read_header

TARGET = demo_pair()[0]


PROMPTS = ("Once upon a time there was a dog.", "Lily had a red ball.")


ENGINE: dict[str, Any] = {"n_ctx": 256, "n_ctx_draft": 256, "n_threads": 1, "n_threads_draft": 1, **EXACT}


Run = Callable[..., tuple[int, str, str]]


def asked(out: Path, target: Path = TARGET, **other: Any) -> DraftRequest:
    search = DraftSearch(
        other.pop("types", ("q4_0",)), other.pop("n_layers", None), other.pop("tries_layers", False), 5.0
    )
    return DraftRequest(str(target), out, search, PROMPTS, 32, ENGINE, **{"force": True, **other})


def quantizer(target: Path) -> Quantizer:
    return Quantizer(TargetSource(read_header(target)), 1)


def bench(target: Path, progress: Callable[[str], None] = lambda _: None) -> Bench:
    return Bench(str(target), ENGINE, PROMPTS, 32, progress)
