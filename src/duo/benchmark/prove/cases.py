"""The cases: how texts are written that have to be the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import cycle, islice
from typing import Any

from duo.benchmark.prove.plan import CHATS, Item, Kind, ProofPlan
from duo.options.option import Mode

LENGTHS = ("auto", 4, 1, 8)  # of guesses, in turn


@dataclass(frozen=True)
class Guesses:
    """What guesses, by the name in the report. options: keywords of a text. modes: the last one is the main one."""

    name: str
    modes: tuple[Mode, ...] = ("sync", "async")
    options: Mapping[str, Any] = field(default_factory=dict)


NONE = Guesses("target alone", ("plain",))
NGRAMS = Guesses("n-grams", options={"spec_type": ["ngram-map-k"]})


@dataclass(frozen=True)
class How:
    """always: guesses are verified whether that pays or not. halved: the state is saved in the middle of the text, and
    restored after another one. logprobs: the candidates of each token are wanted."""

    mode: Mode = "plain"
    options: Mapping[str, Any] = field(default_factory=dict)
    always: bool = True
    streamed: bool = False
    halved: bool = False
    logprobs: bool = False


@dataclass(frozen=True)
class Case:
    name: str
    items: tuple[Item, ...]
    how: How
    at_once: int = 1

    def without(self, kinds: set[Kind]) -> Case:
        """This case without the texts of these kinds."""
        return Case(self.name, tuple(x for x in self.items if x.kind not in kinds), self.how, self.at_once)


def reference_items(plan: ProofPlan) -> tuple[Item, ...]:
    """The texts that all cases are compared with."""
    kinds: tuple[Kind, ...] = ("greedy", "sampled", "long", *CHATS)
    return tuple(x for kind in kinds for x in plan.items(kind))


def of_pair(plan: ProofPlan, guesses: Guesses, n_parallel: int) -> list[Case]:
    """The cases of a loaded pair that writes n_parallel texts at once."""
    return list(_alone(plan, guesses) if n_parallel == 1 else _in_company(plan, _how(guesses), n_parallel))


def of_server(plan: ProofPlan) -> list[Case]:
    """The cases of a server: first one text at a time, then several at once."""
    how, streamed = How(), How(streamed=True)
    greedy, sampled, long, chats = _kinds(plan)
    cases = [
        Case("again", greedy, how),
        Case("with log-probabilities", greedy, How(logprobs=True)),
        Case("streamed", greedy, streamed),
        Case("long prompt", long, streamed),
        Case("sampled again", sampled, how),
        Case("sampled, streamed", sampled, streamed),
        Case("chats", chats, how),
        Case("chats streamed", chats, streamed),
    ]
    for n in plan.counts:
        if n > 1:
            cases += _in_company(plan, how, n)
    return cases


def _kinds(plan: ProofPlan) -> tuple[tuple[Item, ...], ...]:
    """Greedy, sampled and long ones, and chats."""
    return *(plan.items(kind) for kind in ("greedy", "sampled", "long")), tuple(x for k in CHATS for x in plan.items(k))


def _how(guesses: Guesses, mode: Mode | None = None, **more: Any) -> How:
    return How(mode or guesses.modes[-1], guesses.options, **more)


def _alone(plan: ProofPlan, guesses: Guesses) -> Iterator[Case]:
    greedy, sampled, long, chats = _kinds(plan)
    for mode in guesses.modes:
        yield Case(mode, greedy, _how(guesses, mode))
    if guesses.modes[-1] == "async":
        yield Case("async, default options", greedy, _how(guesses, always=False))
    yield Case("streamed", greedy, _how(guesses, streamed=True))
    yield Case("long prompt", long, _how(guesses))
    yield Case("saved and restored", greedy[: max(1, len(greedy) // 2)], _how(guesses, halved=True))
    for mode in guesses.modes:
        yield Case(f"sampled, {mode}", sampled, _how(guesses, mode))
    yield Case("sampled again", sampled, _how(guesses))
    yield Case("chats", chats, _how(guesses))
    yield Case("chats streamed", chats, _how(guesses, streamed=True))


def _in_company(plan: ProofPlan, how: How, n: int) -> Iterator[Case]:
    """A long prompt comes while others are written, and a text that ends makes room for the next one."""
    greedy, sampled, long, chats = _kinds(plan)
    crowd = _enough(greedy, n)
    mixed = (*crowd[:1], *long[:1], *crowd[1:])
    streamed = How(how.mode, how.options, streamed=True)
    most = max(1, plan.n_tokens // 2)
    cancelled = tuple(x._replace(cancel_after=1 + 7 * at % most) if at % 2 else x for at, x in enumerate(mixed))
    yield Case("neighbours", mixed, how, n)
    yield Case("neighbours, streamed", crowd, streamed, n)
    yield Case("neighbours cancelled", cancelled, streamed, n)
    yield Case("neighbours, sampled", _enough(sampled, n), how, n)
    among = tuple(x for pair in zip(_enough(chats, n), cycle(greedy), strict=False) for x in pair)
    yield Case("neighbours, chats", among, how, n)
    yield Case("neighbours, chats streamed", _enough(chats, n), streamed, n)


def _enough(items: tuple[Item, ...], n: int) -> tuple[Item, ...]:
    """Twice as many as are written at once, at least, so that slots change hands."""
    return tuple(islice(cycle(items), max(len(items), 2 * n)))
