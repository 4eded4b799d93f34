"""`duo make-draft`: from a target's file to a draft's file, if one is expected to pay."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from duo.benchmark.bench.arms import ALONE, PLAIN
from duo.errors import BadValueError, DoesNotFitError, DuoError
from duo.make_draft.candidates import DraftCandidate, DraftSearch, TriedCandidates, Workshop
from duo.make_draft.layers import droppable, why_not
from duo.make_draft.measure import Bench
from duo.make_draft.quantize import Quantizer
from duo.make_draft.recipe import TargetSource
from duo.models.header import read_header
from duo.models.packed_form import refuse_packed
from duo.placement.cpus import usable_cores
from duo.support.wording import one_line

PAYS = 1.02  # times the speed of the target alone: less may be chance
UNDRAFTED = (PLAIN.name, ALONE.name)


@dataclass(frozen=True)
class DraftRequest:
    """What make_draft is asked for."""

    target: str
    out: Path
    search: DraftSearch
    prompts: Sequence[str]
    n_tokens: int  # that the target writes to each prompt
    engine: dict[str, Any]  # keywords of `Duo`, which place both models
    force: bool  # write the best one even if it does not pay, and replace a file
    progress: Callable[[str], None] = lambda _: None


@dataclass(frozen=True)
class DraftOutcome:
    """The drafts that were tried, and whether the best one was written."""

    results: TriedCandidates
    measured: dict[str, float] = field(default_factory=dict)  # tokens/s of the best draft, by arm; empty: not measured
    failed: str = ""  # why there was no race
    pays: bool = False
    written: Path | None = None

    @property
    def best(self) -> DraftCandidate | None:
        return self.results.best

    @property
    def gain(self) -> float | None:
        """The best measured speed with the draft, as a multiple of the best one without. None: not measured."""
        drafted = [speed for arm, speed in self.measured.items() if arm not in UNDRAFTED]
        plain = [speed for arm, speed in self.measured.items() if arm in UNDRAFTED]
        return max(drafted) / max(plain) if drafted else None


def check_place(out: Path, *, force: bool) -> None:
    """Reports before a long download that no draft can be written there. Raises BadValueError."""
    if os.path.isdir(out) or not os.path.isdir(out.parent):
        raise BadValueError(
            f"{out} is a folder, or its folder does not exist; name a file in an existing folder with -o"
        )
    if os.path.exists(out) and not force:
        raise BadValueError(f"{out}: exists already; choose another file (-o), or replace it with --force")
    if not os.access(out.parent, os.W_OK):
        raise BadValueError(f"{out.parent}: no file can be written there; choose another folder (-o)")


def checked(request: DraftRequest) -> TargetSource:
    """Reports what cannot work before a long run. Raises DuoError."""
    refuse_packed(request.target, "duo make-draft")
    source = TargetSource(read_header(request.target))
    out, search = request.out, request.search
    if os.path.exists(out) and any(os.path.samefile(out, part) for part in source.header.parts):
        raise BadValueError(f"{out}: is the target itself; write to another file (-o)")
    check_place(out, force=request.force)
    if not search.types and not search.tries_layers and source.n_experts < 2:
        raise BadValueError("--types none and --keep-layers all leave nothing to make; leave one of them out")
    if search.n_layers is not None:
        if why := why_not(source.header, source.n_layers):
            raise BadValueError(f"--keep-layers {search.n_layers} is not possible: {why}; leave it out")
        least = source.n_layers - len(droppable(source.header, source.n_layers))
        if not least <= search.n_layers < source.n_layers:
            raise BadValueError(
                f"--keep-layers {search.n_layers} is not possible here; give {least} to {source.n_layers - 1}"
            )
    return source


def make_draft(request: DraftRequest) -> DraftOutcome:
    """Makes candidates beside `out`, measures them, and moves the best one there. Whatever happens, nothing else stays.

    Raises DuoError: BadValueError (the target or an option), DoesNotFitError (disk or memory).
    """
    source = checked(request)
    bench = Bench(request.target, request.engine, request.prompts, request.n_tokens, request.progress)
    n_threads = request.engine.get("n_threads")
    quantizer = Quantizer(source, int(n_threads) if n_threads else max(1, usable_cores()))
    try:
        beside = Path(os.path.realpath(request.out)).parent  # a link stays a link
        with tempfile.TemporaryDirectory(prefix=".duo-", dir=beside, ignore_cleanup_errors=True) as folder:
            results = Workshop(source, bench, quantizer, Path(folder), request.progress).make(request.search)
            return _decided(request, bench, results)
    except OSError as e:
        raise DoesNotFitError(
            f"{request.out}: could not be written ({e.strerror}); choose another place (-o)"
        ) from None


def _decided(request: DraftRequest, bench: Bench, results: TriedCandidates) -> DraftOutcome:
    """Races the best one, and moves it to its place if it pays there. The formulas only choose: where both models share
    a device they know no more than turn-taking, and async may hide the steps behind the CPU's part of a pass."""
    best = results.best
    if best is None:
        return DraftOutcome(results)
    try:
        outcome = DraftOutcome(results, bench.raced(best.path, best.figures.n_draft))
    except DuoError as e:  # no memory, or texts that end at once
        outcome = DraftOutcome(results, failed=one_line(e))
    outcome = replace(outcome, pays=outcome.gain is not None and outcome.gain >= PAYS)
    if not outcome.pays and not request.force:
        return outcome
    if os.path.exists(request.out) and not request.force:
        raise BadValueError(
            f"{request.out}: was made by another program meanwhile, and was not replaced; choose another file (-o), or "
            "give --force"
        )
    best.path.replace(os.path.realpath(request.out))
    return replace(outcome, written=request.out)
