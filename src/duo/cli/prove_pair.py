"""`duo prove` with models that are loaded here: which drafts are at hand, and how each is loaded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from duo.benchmark.bench.head import head_of
from duo.benchmark.prove.cases import NGRAMS, NONE, Case, Guesses, How, of_pair, reference_items
from duo.benchmark.prove.pair import PairWriter, n_context
from duo.benchmark.prove.plan import Item, ProofPlan
from duo.benchmark.prove.run import Proof, References
from duo.cli import show
from duo.cli.bench_head import OF_DRAFT
from duo.cli.models import Models, chosen_models
from duo.cli.opening import open_duo, warn_of_models
from duo.cli.own_guesses import draft_of_target, left_to_duo, tell_of
from duo.errors import BadValueError
from duo.models.demo import demo_head, demo_pair
from duo.models.head import HEADS, Head
from duo.models.header import read_header
from duo.options.tables import ENGINE_OPTIONS
from duo.placement import kernels

if TYPE_CHECKING:
    from duo.model import Duo

BOTH = ["draft-simple", "ngram-map-k"]
N_BLOCK = 256  # contexts are multiples


@dataclass(frozen=True)
class Load:
    """Models that are loaded together. draft: a file; None: there is none, or it is the target's layers or elsewhere.
    spec_type: what guesses, for which duo chooses threads; None: as the draft's file says."""

    guesses: tuple[Guesses, ...]
    draft: str | None = None
    spec_type: tuple[str, ...] | None = None
    with_draft: bool = True


# Threads and kernels are those of a run that guesses.
ALONE = Load((NONE, NGRAMS), spec_type=("ngram-map-k",), with_draft=False)


def _drafts(params: dict[str, Any], models: Models) -> Iterator[Load]:
    """Every draft at hand but n-grams. Raises DuoError."""
    if params["draft_host"] is not None:
        yield Load((Guesses("a draft elsewhere"),))
    if models.draft is not None:
        yield load_of_file(models.draft)
    if models.target is None:
        if models.draft is None:
            yield from (load_of_file(str(path)) for path in (demo_pair()[1], demo_head()))
        return
    left = left_to_duo(params, models)
    source = draft_of_target(models)
    if left:
        tell_of(source)
        if source.path is not None:
            yield load_of_file(source.path)
    if source.own and (left or models.draft is not None):
        yield Load((Guesses("own MTP layers"),), spec_type=("draft-mtp",))


def load_of_file(path: str) -> Load:
    """Raises DuoError: it is no model."""
    head = Head.of(read_header(path))
    if head is not None:
        return Load((Guesses(HEADS[head.kind].removeprefix("an ").removeprefix("a ")),), path)
    return Load((Guesses("draft model"), Guesses("draft and n-grams", ("async",), {"spec_type": BOTH})), path)


@dataclass(frozen=True)
class Loader:
    """Loads all with the same kernels, and room for as many texts as are written at once."""

    params: dict[str, Any]
    target: str
    plan: ProofPlan
    n_short: int  # tokens of the longest text that is not long
    n_long: int
    chat_template: str | None

    @classmethod
    def of(cls, params: dict[str, Any], target: str, plan: ProofPlan) -> Loader:
        """Raises DuoError."""
        from duo.model import Duo

        if not params["strict"] and params["cpu_kernels"] is None and kernels.available():
            params = {**params, "cpu_kernels": "duo"}  # otherwise a race chooses, for each load anew
        items = reference_items(plan)
        with Duo(target, vocab_only=True) as d:
            short, long = ([x for x in items if (x.kind == "long") == is_long] for is_long in (False, True))
            try:
                d.chat_template  # noqa: B018 - raises BadValueError
                template = None
            except BadValueError:
                template = "chatml"
            return cls(params, target, plan, n_context(d, plan, short), n_context(d, plan, long), template)

    @contextmanager
    def writer(self, load: Load, n_parallel: int, proof: Proof) -> Iterator[tuple[PairWriter, Duo]]:
        """Raises DuoError."""
        params = {**self.params, "n_parallel": n_parallel}
        if not load.with_draft:
            params |= dict.fromkeys(OF_DRAFT)
        if params["n_ctx"] is None:
            n = n_parallel * self.n_short + self.n_long
            params["n_ctx"] = (n + N_BLOCK - 1) // N_BLOCK * N_BLOCK
        more: dict[str, Any] = {} if load.spec_type is None else {"spec_type": list(load.spec_type)}
        more |= {} if self.chat_template is None else {"chat_template": self.chat_template}
        with open_duo(params, models=Models(self.target, load.draft), **more) as d:
            if not d.target.same_bits:
                proof.notes[NOT_PROMISED] = None
            yield PairWriter(d, self.plan), d


NOT_PROMISED = (
    "equal texts are not promised here, because passes of different widths may round differently; with --strict they "
    "are, and on CPUs with --cpu-kernels duo"
)


def loads_of(params: dict[str, Any], models: Models) -> list[Load]:
    """The models to load; the target alone comes last, so that a run that ends early has measured its drafts. Raises
    DuoError."""
    if params["verify_host"] is not None:
        raise BadValueError(
            "duo prove compares with the target alone, which has to be on this machine; leave out --verify-host"
        )
    return [*_drafts(params, models), ALONE]


Round = tuple[Load, int, list[tuple[Guesses, Case]]]


def rounds_of(loads: Sequence[Load], plan: ProofPlan) -> list[Round]:
    """The loads, each with a number of texts at once and its cases."""
    return [
        (load, n, [(g, case) for g in load.guesses for case in of_pair(plan, g, n)])
        for load in loads
        for n in plan.counts
    ]


def references(loader: Loader, proof: Proof, items: Sequence[Item], head: dict[str, Any], command: str) -> None:
    """Texts of the target alone, one at a time. Raises DuoError."""
    with loader.writer(ALONE, 1, proof) as (writer, d):
        show.note_placement(d.placement)
        warn_of_models(d)
        settings = {k: v for k, v in d.options.items() if v != ENGINE_OPTIONS[k].default}
        head.update(head_of([d.target], command, settings))
        proof.refer(writer, items, NONE.name, How(logprobs=True))


def measure(params: dict[str, Any], plan: ProofPlan, proof: Proof, head: dict[str, Any], command: str) -> None:
    """Raises DuoError and KeyboardInterrupt; `proof` then has what was counted."""
    models = chosen_models(params)
    loads = loads_of(params, models)
    loader = Loader.of(params, models.target or str(demo_pair()[0]), plan)
    rounds = rounds_of(loads, plan)
    items = reference_items(plan)
    proof.n_expected = len(items) + sum(len(case.items) for *_, cases in rounds for _, case in cases)
    head["reference"] = "the target alone, one text at a time (plain decoding)"
    references(loader, proof, items, head, command)
    for load, n, cases in rounds:
        with loader.writer(load, n, proof) as (writer, _):
            for guesses, case in cases:
                proof.measure(guesses.name, writer, case)
    for guesses in (g for load in loads for g in load.guesses if g.modes != NONE.modes):
        if not any(t.n_drafted for t in proof.tallies if t.guesses == guesses.name):
            proof.notes[f"not proved: {guesses.name}, because none of their guesses was verified"] = None


def texts_here(
    params: dict[str, Any], plan: ProofPlan, notes: dict[str, None], head: dict[str, Any], command: str
) -> References:
    """The greedy texts of a target that is loaded here. Adds to the notes. Raises DuoError."""
    proof = Proof()
    loader = Loader.of(params, str(chosen_models(params).target), plan)
    references(loader, proof, plan.items("greedy"), head, command)
    notes |= proof.notes
    return proof.references
