"""Makes drafts of a target, measures each, and keeps the best: fewer bits, then fewer experts, then fewer layers."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from duo.errors import DoesNotFitError, DuoError
from duo.make_draft.layers import LayerSearch, Score, SilencedCopy, droppable, why_not
from duo.make_draft.measure import Bench, Figures
from duo.make_draft.quantize import Quantizer, check_room
from duo.make_draft.recipe import SAME, DraftRecipe, TargetSource, step_bytes
from duo.models.header import read_header
from duo.support.wording import one_line

SMALLER = 0.97  # a draft has to be smaller than this share of its target
N_AFTER_SEARCH = 3  # drafts that are measured after the layers were chosen
LEAST_EXPERTS = 1
EXPERTS_TYPE = "q2_k"
FEWER_LAYERS = "fewer layers"


@dataclass(frozen=True)
class DraftCandidate:
    recipe: DraftRecipe
    name: str
    n_bytes: int  # of its file
    figures: Figures
    path: Path


@dataclass(frozen=True)
class LeftOut:
    """A draft, or a kind of drafts, that was not measured."""

    name: str
    why: str


@dataclass(frozen=True)
class DraftSearch:
    """What drafts to try, and for how long."""

    types: tuple[str, ...]
    n_layers: int | None  # that the draft keeps; None: as many as pay
    tries_layers: bool
    minutes: float


@dataclass
class TriedCandidates:
    """All that was tried, in this order."""

    candidates: list[DraftCandidate] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    n_trials: int = 0  # drafts without some layers that were tried
    best: DraftCandidate | None = None


class Workshop:
    """One run for one target. `folder` holds the best draft so far, and the one that is tried."""

    def __init__(
        self, source: TargetSource, bench: Bench, quantizer: Quantizer, folder: Path, progress: Callable[[str], None]
    ) -> None:
        self._source, self._bench, self._quantizer = source, bench, quantizer
        self._folder, self._progress = folder, progress
        self._results = TriedCandidates()
        self._ends, self._took = 0.0, 0.0
        self._types: dict[tuple[object, ...], str] = {}  # names by the types of all weights
        self._error: DuoError | None = None

    def make(self, search: DraftSearch) -> TriedCandidates:
        """Raises DuoError: no draft could be measured."""
        self._ends = time.monotonic() + 60 * search.minutes
        for name in search.types:
            self._try(DraftRecipe(type=name))
        if self._source.n_experts > LEAST_EXPERTS:
            self._try_experts()
        if search.tries_layers:
            self._try_layers(search.n_layers)
        if self._error is not None and not self._results.candidates:
            raise self._error
        return self._results

    def _leave_out(self, name: str, why: str) -> None:
        self._results.left_out.append(LeftOut(name, why))

    def _try(self, recipe: DraftRecipe) -> DraftCandidate | None:
        """Makes and measures it, and keeps its file if it is the best so far."""
        name = self._source.name_of(recipe)
        if any(c.recipe == recipe for c in self._results.candidates):
            return None
        if time.monotonic() >= self._ends and self._results.candidates:
            self._leave_out(name, "time was up (--minutes)")
            return None
        began = time.monotonic()
        try:
            candidate = self._candidate(recipe, name)
        except DuoError as e:
            self._error = e
            self._leave_out(name, one_line(e))
            return None
        self._took = time.monotonic() - began
        if candidate is not None:
            self._results.candidates.append(candidate)
        return candidate

    def _candidate(self, recipe: DraftRecipe, name: str) -> DraftCandidate | None:
        """The draft, made and measured; None: it is not worth measuring. Raises DuoError."""
        path = self._folder / f"{len(self._results.candidates)}.gguf"
        self._progress(f"{name}: its size")
        # With fewer experts a file is as large, and a step reads less.
        if recipe.n_experts is None and self._quantizer.size_of(recipe) > SMALLER * self._source.n_bytes:
            self._leave_out(name, "it would not be smaller than the target")
            return None
        self._quantizer.write(recipe, path, lambda done, of: self._progress(f"{name}: writing, {done} of {of} tensors"))
        try:
            if (twin := self._twin(path, recipe, name)) is not None:
                self._leave_out(name, f"it would be the same as {twin}: the matrices have no width for this type")
                path.unlink()
                return None
            figures = self._bench.figures(path, name)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        candidate = DraftCandidate(recipe, name, path.stat().st_size, figures, path)
        best = self._results.best
        if best is None or figures.expected > best.figures.expected:
            if best is not None:
                best.path.unlink()
            self._results.best = candidate
        else:
            path.unlink()
        return candidate

    def _twin(self, path: Path, recipe: DraftRecipe, name: str) -> str | None:
        """The name of an earlier draft that has the same types in all matrices, and else is the same. Where a matrix's
        width does not suit a K-quant, llama.cpp takes a type of smaller blocks."""
        types = ((t.name, t.type) for t in read_header(path).tensors)
        twin = self._types.setdefault((recipe.left_out, recipe.n_experts, *types), name)
        return None if twin == name else twin

    # ---- experts

    def _try_experts(self) -> None:
        """Fewer bits for the experts, then half as many in use, as long as that is better."""
        best = self._results.best
        if best is not None and best.recipe.type not in (SAME, EXPERTS_TYPE):
            self._try(replace(best.recipe, experts_type=EXPERTS_TYPE))
        n = self._source.n_experts // 2
        while n >= LEAST_EXPERTS:
            best = self._results.best
            candidate = self._try(replace(DraftRecipe() if best is None else best.recipe, n_experts=n))
            if candidate is None or candidate is not self._results.best:
                return
            n //= 2

    # ---- layers

    def _try_layers(self, n_layers: int | None) -> None:
        """n_layers: that stay; None: as many as pay."""
        if why := why_not(self._source.header, self._source.n_layers):
            self._leave_out(FEWER_LAYERS, why)
            return
        base, n = self._results.best, None if n_layers is None else self._source.n_layers - n_layers
        try:
            sets = self._sets(base, n)
        except DuoError as e:
            self._error = e
            self._leave_out(FEWER_LAYERS, one_line(e))
            return
        if not sets:
            self._leave_out(FEWER_LAYERS, "time was up before a layer was tried (--minutes)")
        recipe = DraftRecipe() if base is None else base.recipe
        for left_out in sets:
            self._try(replace(recipe, left_out=left_out))
        if sets and recipe.type != SAME:
            self._try(DraftRecipe(left_out=sets[0]))

    def _sets(self, base: DraftCandidate | None, n: int | None) -> list[tuple[int, ...]]:
        """Layers to leave out of this draft, or of the target: as chosen by trials, and evenly. Raises DuoError."""
        model = self._single_file() if base is None else base.path
        try:
            figures = self._bench.figures(model, "the target as its own draft") if base is None else base.figures
            return self._searched(model, figures, n)
        finally:
            if base is None and model.parent == self._folder:
                model.unlink(missing_ok=True)  # the parts of a split target in one: no draft

    def _searched(self, model: Path, figures: Figures, n: int | None) -> list[tuple[int, ...]]:
        """figures: of `model`; drafts are tried that lack some of its layers. Raises DuoError."""
        header, mtp = read_header(model), self._source.mtp_layers
        n_bytes = step_bytes(header, mtp)

        def worth(score: Score, left_out: tuple[int, ...]) -> float:
            """A step takes as long as reading its weights."""
            step_ms = figures.step_ms * step_bytes(header, (*left_out, *mtp)) / n_bytes
            return self._bench.expecting(replace(figures, acceptance=score.by_position, step_ms=step_ms)).expected

        copy = self._folder / "silenced.gguf"
        try:
            check_room(copy, header.n_file_bytes)
            silenced = SilencedCopy(model, copy)

            def score(left_out: tuple[int, ...]) -> Score:
                silenced.silence(left_out)
                return self._bench.score(copy)

            left = self._ends - time.monotonic()
            ends = self._ends - min(N_AFTER_SEARCH * self._took, left / 2)
            layers = droppable(self._source.header, self._source.n_layers)
            search = LayerSearch(layers, score, worth, ends=ends, progress=self._progress)
            evenly = search.spread(n)
            sets = [search.chosen(n), evenly]
        except OSError as e:
            raise DoesNotFitError(
                f"{self._folder.parent}: a copy for trying layers could not be written ({e.strerror}); free some space "
                "or choose another disk (-o)"
            ) from None
        finally:
            copy.unlink(missing_ok=True)
        self._results.n_trials = len(search.trials)
        return list(dict.fromkeys(s for s in sets if s is not None))

    def _single_file(self) -> Path:
        """The target in one file. Raises DuoError."""
        if self._source.header.n_parts == 1:
            return Path(self._source.path)
        path = self._folder / "whole.gguf"
        self._quantizer.write(DraftRecipe(), path)
        return path
