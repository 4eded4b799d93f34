"""Simulated models for `duo bench --synthetic`: the real engine with scripted costs and agreement, without weights."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from duo import _core
from duo.errors import BadValue, error_class
from duo.measure.bench import files, report
from duo.measure.bench.arms import PLAIN, Arm, Length, arms_of
from duo.measure.bench.head import head_of
from duo.measure.bench.questions import Question
from duo.measure.bench.record import Answer
from duo.measure.bench.run import Progress, interleaved
from duo.options.option import Mode
from duo.text.result import timings

SLICE_US = 50_000  # how often Ctrl-C is noticed
N_PROMPT = 32
N_QUESTIONS = 4

# The format of each part of a specification.
PARTS = {
    "a": "0.8, or values that alternate after a number of tokens: 0.9/0.5:32",
    "b": "a number from 0 to 1: 0.45",
    "branch": "a number from 0 to 1000: 0.02",
    "burst": "a number from 0 to 1: 0.5",
    "c": "a number from 0 to 1000: 0.2",
    "confident": "0 or 1",
    "pass": "a time from 0us to 1000s: 20ms",
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


def _whole(text: str, low: int, high: int) -> int:
    """Raises ValueError."""
    if not re.fullmatch(r"[0-9]{1,20}", text) or not low <= int(text) <= high:
        raise ValueError
    return int(text)


def _agreement(o: _core.SyntheticOptions, text: str) -> None:
    values, colon, stretch = text.partition(":")
    o.a = [_number(x, 0, 1) for x in values.split("/")]
    o.n_stretch = _whole(stretch, 1, 2**31 - 1) if colon else 0


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
        points.append((_whole(n_rows, points[-1][0] + 1 if points else 1, 2**31 - 1), _factor(factor)))
    o.v = points


def _pass(o: _core.SyntheticOptions, text: str) -> None:
    found = re.fullmatch(r"(.*?)(us|ms|s)", text)
    if found is None:
        raise ValueError
    unit = {"us": 1.0, "ms": 1e3, "s": 1e6}[found[2]]
    o.pass_us = _number(found[1], 0, 1e9 / unit) * unit


def _set(name: str, value: Callable[[str], object]) -> Callable[[_core.SyntheticOptions, str], None]:
    return lambda o, text: setattr(o, name, value(text))


_READ: dict[str, Callable[[_core.SyntheticOptions, str], None]] = {
    "a": _agreement,
    "b": _set("b", lambda t: _number(t, 0, 1)),
    "branch": _set("branch_cost", lambda t: _number(t, 0, 1000)),
    "burst": _set("burst", lambda t: _number(t, 0, 1)),
    "c": _set("c", lambda t: _number(t, 0, 1000)),
    "confident": _set("confident", lambda t: bool(_whole(t, 0, 1))),
    "pass": _pass,
    "seed": _set("seed", lambda t: _whole(t, 0, 2**64 - 1)),
    "v": _cost,
}


def parse(spec: str) -> _core.SyntheticOptions:
    """ "a=0.8,c=0.2,v=1:0.02" -> options; parts that are left out keep their defaults. Raises BadValue."""
    o = _core.SyntheticOptions()
    seen = set()
    for part in spec.split(","):
        name, equals, text = (x.strip() for x in part.partition("="))
        if name not in _READ:
            raise BadValue(
                f"--synthetic has the unknown part {part.strip()!r}; choose from {', '.join(f'{n}=' for n in PARTS)}"
            )
        if name in seen:
            raise BadValue(f"--synthetic has {name} twice; write it once")
        seen.add(name)
        try:
            if not equals:
                raise ValueError
            _READ[name](o, text)
        except ValueError:
            raise BadValue(f"--synthetic has {part.strip()!r}; for {name} write {PARTS[name]}") from None
    return o


def _greedy() -> _core.Sampling:
    s = _core.Sampling()
    s.temp = 0.0
    return s


def _begin(engine: _core.Engine, prompt: Sequence[int], n_predict: int, arm: Arm, *, fixed: bool = False) -> _core.Text:
    """Starts a text. fixed: keep the draft length even if it does not pay."""
    plan = _core.Plan()
    plan.mode = arm.mode
    plan.n_draft = arm.n_draft if isinstance(arm.n_draft, int) else _core.N_DRAFT_AUTO
    if fixed and isinstance(arm.n_draft, int):
        plan.always, plan.n_draft_min = True, arm.n_draft
    return engine.begin(prompt=prompt, n_predict=n_predict, sampling=_greedy(), plan=plan, stop=[], n_logprobs=-1)


class SyntheticWriter:
    """Writes texts of n_predict tokens with the engine on simulated models."""

    def __init__(self, options: _core.SyntheticOptions, n_predict: int, *, fixed: bool = False) -> None:
        """Raises DuoError: the options are not possible."""
        self._fixed = fixed
        options.n_ctx = max(options.n_ctx, n_predict + 2 * N_PROMPT)
        self._n_vocab, self._n_predict = options.n_vocab, n_predict
        self._engine = _core.Engine(options)

    def write(self, question: Question, arm: Arm) -> list[Answer]:
        """Turns are independent: a text depends only on the words of its turn and the seed."""
        answers = []
        for turn in question.turns:
            prompt = self._ids(turn)
            # Clears the prompt caches. Otherwise only the first arm of a round would evaluate the prompt.
            self.text([(prompt[0] + 1) % self._n_vocab], Arm("", "plain" if arm == PLAIN else "sync", 1), 2)
            answers.append(self.text(prompt, arm, self._n_predict))
        return answers

    def _ids(self, text: str) -> list[int]:
        # Any function of the text works, except Python's hash(), which changes from run to run.
        key = sum(31**i * byte for i, byte in enumerate(text.encode())) + 1
        return [key * (2 * i + 3) % 1_000_003 % self._n_vocab for i in range(N_PROMPT)]

    def text(self, prompt: Sequence[int], arm: Arm, n_predict: int) -> Answer:
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
        return Answer(tokens, t_us, timings(stats, with_draft=arm.mode != "plain"), stats["warning"])

    def close(self) -> None:
        self._engine.close()


def run(
    spec: str,
    modes: Sequence[Mode],
    sync_lengths: Sequence[Length],
    lengths: Sequence[Length],
    n_predict: int,
    repetitions: int,
    json: Path | None = None,
    csv: Path | None = None,
    shown: Progress = lambda _done, _total, _name: None,
) -> None:
    """`duo bench --synthetic`: measures, prints, and writes files. Raises DuoError.

    Ctrl-C ends the run early: it reports what was measured and raises KeyboardInterrupt.
    """
    progress = [0, 0]

    def on_progress(done: int, total: int, name: str) -> None:
        progress[:] = done, total
        shown(done, total, name)

    settings = {"synthetic": spec, "max_tokens": n_predict, "repetitions": repetitions, "warm_up": 1}
    words: dict[str, Any] = {"modes": modes, "sync-lengths": sync_lengths, "lengths": lengths}
    command = ["duo", "bench", "--synthetic", spec, "-n", str(n_predict), "--repetitions", str(repetitions)]
    for name, values in words.items():
        command += [f"--{name}", ",".join(map(str, values))]
    head = head_of([], shlex.join(command), settings)
    questions = [Question(i, "made up", (f"question {i}",)) for i in range(1, N_QUESTIONS + 1)]
    writer = SyntheticWriter(parse(spec), n_predict)
    try:
        records = interleaved(writer, questions, arms_of(modes, sync_lengths, lengths), repetitions, 1, on_progress)
    finally:
        writer.close()
    n_done, n_all = progress
    notes = [f"ended early: {n_done} of {n_all} answers were written, including warm-up"] if n_done < n_all else []
    report.show(records, head, notes)
    if json is not None:
        files.write_json(json, files.as_json(records, head, notes, complete=n_done == n_all))
    if csv is not None:
        files.write_csv(csv, records)
    if n_done < n_all:
        raise KeyboardInterrupt
