"""Simulated models for `duo bench --synthetic`: the real engine with scripted costs and agreement, without weights."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from duo import _core
from duo.benchmark.bench.arms import Arm
from duo.benchmark.bench.questions import Question
from duo.benchmark.bench.record import MeasuredAnswer
from duo.benchmark.bench.strangers import strangers
from duo.errors import BadValueError, error_class
from duo.generation.timings import timings

SLICE_US = 50_000  # how often Ctrl-C is noticed
N_PROMPT = 32

# The format of each part of a specification.
PARTS = {
    "a": "0.8, or values that alternate after a number of tokens: 0.9/0.5:32",
    "b": "a number from 0 to 1: 0.45",
    "branch": "a number from 0 to 1000: 0.02",
    "burst": "a number from 0 to 1: 0.5",
    "c": "a number from 0 to 1000: 0.2",
    "confident": "0 or 1",
    "pass": "a time from 0us to 1000s: 20ms",
    "says": "a number from 0 to 1: 0.7",
    "seed": "a whole number from 0 to 2^64 - 1: 1",
    "v": "a first value and a slope, 1:0.02, or values at ascending numbers of rows: 1@1/1.2@2/1.6@4/2.6@8",
}


def _number(text: str, low: float, high: float) -> float:
    """Raises ValueError."""
    if not re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", text):
        raise ValueError
    x = float(text)
    if not (math.isfinite(x) and low <= x <= high):
        raise ValueError
    return x


def _integer(text: str, low: int, high: int) -> int:
    """Raises ValueError."""
    if not re.fullmatch(r"[0-9]{1,20}", text) or not low <= int(text) <= high:
        raise ValueError
    return int(text)


def _agreement(o: _core.SyntheticOptions, text: str) -> None:
    values, colon, stretch = text.partition(":")
    o.a = [_number(x, 0, 1) for x in values.split("/")]
    o.n_stretch = _integer(stretch, 1, 2**31 - 1) if colon else 0


def _factor(text: str) -> float:
    return _number(text, 1e-6, 1e6)


def _cost(o: _core.SyntheticOptions, text: str) -> None:
    if "@" not in text:
        first, _, slope = text.partition(":")
        v1 = _factor(first)
        o.v = [(1, v1), (2, v1 + _number(slope, 0, 1e5))]
        return
    points: list[tuple[int, float]] = []
    for point in text.split("/"):
        factor, _, n_rows = point.partition("@")
        points.append((_integer(n_rows, points[-1][0] + 1 if points else 1, 2**31 - 1), _factor(factor)))
    o.v = points


def _pass(o: _core.SyntheticOptions, text: str) -> None:
    match = re.fullmatch(r"(.*?)(us|ms|s)", text)
    if match is None:
        raise ValueError
    unit = {"us": 1.0, "ms": 1e3, "s": 1e6}[match[2]]
    o.pass_us = _number(match[1], 0, 1e9 / unit) * unit


def _set(name: str, value: Callable[[str], object]) -> Callable[[_core.SyntheticOptions, str], None]:
    return lambda o, text: setattr(o, name, value(text))


_READ: dict[str, Callable[[_core.SyntheticOptions, str], None]] = {
    "a": _agreement,
    "b": _set("b", lambda t: _number(t, 0, 1)),
    "branch": _set("branch_cost", lambda t: _number(t, 0, 1000)),
    "burst": _set("burst", lambda t: _number(t, 0, 1)),
    "c": _set("c", lambda t: _number(t, 0, 1000)),
    "confident": _set("confident", lambda t: bool(_integer(t, 0, 1))),
    "pass": _pass,
    "says": _set("says", lambda t: _number(t, 0, 1)),
    "seed": _set("seed", lambda t: _integer(t, 0, 2**64 - 1)),
    "v": _cost,
}


def parse(spec: str) -> _core.SyntheticOptions:
    """ "a=0.8,c=0.2,v=1:0.02" -> options; parts that are left out keep their defaults. Raises BadValueError."""
    o = _core.SyntheticOptions()
    seen = set()
    for part in spec.split(","):
        name, equals, text = (x.strip() for x in part.partition("="))
        if name not in _READ:
            raise BadValueError(
                f"--synthetic has the unknown part {part.strip()!r}; choose from {', '.join(f'{n}=' for n in PARTS)}"
            )
        if name in seen:
            raise BadValueError(f"--synthetic has {name} twice; write it once")
        seen.add(name)
        try:
            if not equals:
                raise ValueError
            _READ[name](o, text)
        except ValueError:
            raise BadValueError(f"--synthetic has {part.strip()!r}; for {name} write {PARTS[name]}") from None
    return o


def _greedy() -> _core.Sampling:
    s = _core.Sampling()
    s.temp = 0.0
    return s


def _begin(engine: _core.Engine, prompt: Sequence[int], n_predict: int, arm: Arm, *, fixed: bool = False) -> _core.Text:
    """Starts a text. fixed: keep the draft length even if it does not pay."""
    plan = _core.Plan()
    plan.mode = arm.local_mode
    plan.n_draft = arm.n_draft if isinstance(arm.n_draft, int) else _core.N_DRAFT_AUTO
    if fixed and isinstance(arm.n_draft, int):
        plan.always, plan.n_draft_min = True, arm.n_draft
    return engine.begin(prompt=prompt, n_predict=n_predict, sampling=_greedy(), plan=plan, stop=[], n_logprobs=-1)


class SyntheticWriter:
    """Writes texts of n_predict tokens with the engine on simulated models."""

    def __init__(self, options: _core.SyntheticOptions, n_predict: int, *, fixed: bool = False) -> None:
        """Raises DuoError: the options are not possible."""
        self._fixed = fixed
        options.n_ctx = max(options.n_ctx, options.n_parallel * (n_predict + 2 * N_PROMPT))
        self._n_vocab, self._n_predict = options.n_vocab, n_predict
        self._engine = _core.Engine(options)

    def write(self, question: Question, arm: Arm) -> list[MeasuredAnswer]:
        """Turns are independent: a text depends only on the words of its turn and the seed."""
        answers = []
        for turn in question.turns:
            self.clear([replace(question, turns=(turn,))], 1)
            answers.append(self.text(self._ids(turn), arm, self._n_predict))
        return answers

    def clear(self, questions: Sequence[Question], n: int) -> None:
        """As `DuoWriter.clear`."""
        first = {self._ids(turn)[0] for q in questions for turn in q.turns}
        for other in strangers(first, self._n_vocab, n):
            self.text([other], Arm("", "sync", 1), 2)

    def answers(self, question: Question, arm: Arm) -> list[MeasuredAnswer]:
        """The answers to all turns, from whatever the caches have. Several threads may call this."""
        return [self.text(self._ids(turn), arm, self._n_predict) for turn in question.turns]

    def _ids(self, text: str) -> list[int]:
        # Any function of the text works, except Python's hash(), which changes from run to run.
        key = sum(31**i * byte for i, byte in enumerate(text.encode())) + 1
        return [key * (2 * i + 3) % 1_000_003 % self._n_vocab for i in range(N_PROMPT)]

    def text(self, prompt: Sequence[int], arm: Arm, n_predict: int) -> MeasuredAnswer:
        """Generates one text. Raises DuoError: the engine fails."""
        tokens: list[int] = []
        t_us: list[int] = []
        text = _begin(self._engine, prompt, n_predict, arm, fixed=self._fixed)
        try:
            while True:
                chunk = self._engine.next(text, SLICE_US)
                if chunk is None:
                    continue
                if chunk.finish:
                    break
                tokens.append(chunk.token)
                t_us.append(chunk.t_us)
        except BaseException:
            self._engine.cancel(text)
            raise
        stats = text.stats()
        if chunk.finish == "error":
            raise error_class(stats["error_code"])(stats["error"])
        return MeasuredAnswer(tokens, t_us, timings(stats, with_draft=arm.mode != "plain"), stats["warning"])

    def close(self) -> None:
        self._engine.close()
