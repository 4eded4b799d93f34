"""Measures what a draft brings on this machine, with the engine and the formulas of `duo tune`."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from duo import _core
from duo.benchmark.bench.arms import ALONE, PLAIN
from duo.benchmark.bench.bound import best_sync, overlapped_bound, pass_cost
from duo.benchmark.bench.costs import acceptances, costs_of
from duo.benchmark.bench.record import AnswerRecord
from duo.benchmark.sharing import sharing_of
from duo.benchmark.tune import LENGTHS, N_RACE, TuningTexts, fitting, measure_widths, race, speed_of, sync
from duo.benchmark.tuning import Tuning
from duo.errors import DuoError
from duo.make_draft.layers import Score
from duo.model import Duo
from duo.options.model import ModelOptions
from duo.options.validate import engine_options
from duo.placement.place import place_alone
from duo.train.acceptance import Acceptance, runs

N_PLAIN = 32  # tokens of a plain text at most
N_GUESSES = 4  # in each pass of the texts that show how often the draft is right
N_PASS = 256  # rows of a pass of the draft alone
N_LOGITS = 1 << 24  # numbers of a pass's logits at most
LEAST_LOG_P = -30.0  # nats
PROMPTS = "--prompts"

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Figures:
    """The figures of a draft on this machine. Times are in ms."""

    acceptance: tuple[float, ...]  # share of right guesses by position, if those before are right
    pass_ms: float  # of the target, over one token, while the draft is loaded and waits
    step_ms: float  # of the draft, while the target waits
    expected: float = 0.0  # speed, as a multiple of the target alone
    n_draft: int = 1  # guesses in a pass, with which turn-taking is fastest
    at_once: bool = False  # no device is shared: `expected` is the most that is possible while both work
    alone_ms: float | None = None  # as pass_ms, without a draft; None: unknown

    @property
    def share_left(self) -> float:
        """The share of the target's speed that is left while the draft is loaded: a draft on the GPU takes the room of
        layers of the target. A higher measured value than 1 is chance."""
        return 1.0 if self.alone_ms is None else min(1.0, self.alone_ms / self.pass_ms)

    @property
    def c(self) -> float:
        """Time of a step, in passes of the target over one token."""
        return self.step_ms / self.pass_ms


class _Passing(Duo):
    """Its draft's file is gone soon, so nothing is kept of what it learns."""

    def _before_loading(self, _placed: _core.EngineOptions) -> bool:
        return False


@dataclass
class Bench:
    """Measures drafts of one target, one after the other."""

    target: str
    engine: dict[str, Any]  # keywords of `Duo`, those of the draft, too
    prompts: Sequence[str]
    n_tokens: int  # of a text
    progress: Progress
    alone_ms: float | None = None  # a token of the target without a draft; measured before the first draft
    pass_ms: dict[int, float] = field(default_factory=dict)  # of the target by rows, from the first draft
    texts: list[tuple[list[int], int]] = field(default_factory=list)  # that the target wrote; tokens of the prompt
    ends: list[int] = field(default_factory=list)  # tokens that end a text, which these texts never say

    def figures(self, draft: Path, name: str) -> Figures:
        """Both models are loaded, and the target's texts show the draft's acceptance. Raises DuoError."""
        if self.alone_ms is None:
            self.alone_ms = self._alone()
        with self._duo(draft) as d:
            prompts = fitting(d, self.prompts, self._n_most, PROMPTS)
            texts = TuningTexts(d, PROMPTS)
            if not self.pass_ms:
                t = Tuning()
                measure_widths(t, texts, prompts[:1], lambda what: self.progress(f"{name}: {what}"))
                self.pass_ms = t.pass_ms
            records, read = [], []
            for i, prompt in enumerate(prompts, 1):
                self.progress(f"{name}: text {i} of {len(prompts)}")
                # The load of the machine changes, so a step is compared with plain decoding beside it.
                records.append(texts.write_all(prompt, min(self.n_tokens, N_PLAIN), PLAIN))
                records.append(r := texts.write_all(prompt, self.n_tokens, sync(N_GUESSES)))
                prompt_tokens = d.tokenize(prompt, special=True)
                read.append(([*prompt_tokens, *r.tokens], len(prompt_tokens)))
            self.texts = self.texts or read
            self.ends = self.ends or [i for i in range(d.target.n_vocab) if d.target.is_end(i)]
            shared = sharing_of(d)
        plain = _token_ms(records)
        step = costs_of(records).step_ms.get(1)
        a = tuple(acceptances(records))
        if step is None or not a:
            raise DuoError(f"{name} makes no guesses that could be measured")
        return self.expecting(
            Figures(a, plain, step, at_once=not (shared.cpu or shared.devices), alone_ms=self.alone_ms)
        )

    def expecting(self, f: Figures) -> Figures:
        """These figures with the speed that the formulas of duo.benchmark.bench.bound expect."""
        v, k_most = pass_cost(self.pass_ms), max(self.pass_ms) - 1
        n_draft, expected = best_sync(f.acceptance, f.c, v, k_most)
        if f.at_once:
            expected = max(expected, overlapped_bound(f.acceptance, f.c, v, k_most))
        return replace(f, expected=f.share_left * expected, n_draft=n_draft)

    def raced(self, draft: Path, n_draft: int) -> dict[str, float]:
        """Tokens/s of plain decoding, turn-taking and async on the same texts; then of the target with no draft loaded,
        which the draft has to beat. Raises DuoError."""
        with self._duo(draft) as d:
            t = Tuning(n_sync=n_draft)
            race(t, TuningTexts(d, PROMPTS), prompts := fitting(d, self.prompts, flag=PROMPTS), self.progress)
        with self._duo(None) as d:
            texts, records = TuningTexts(d, PROMPTS), []
            for i, prompt in enumerate(prompts, 1):
                self.progress(f"the race, text {i} of {len(prompts)}: the target alone")
                records.append(texts.write(prompt, N_RACE, ALONE))
        return {**t.measured, ALONE.name: speed_of(records, PROMPTS)}

    def score(self, draft: Path) -> Score:
        """How often the draft alone is right on what the target wrote: it reads the texts, which costs less than to
        write them. Raises DuoError."""
        o = engine_options({**self.engine, "n_parallel": 1})
        n_ctx = max(len(tokens) for tokens, _ in self.texts)
        of_draft = ModelOptions.of(o, "draft", str(draft))
        n_batch = min(of_draft.n_batch, N_PASS)
        probe = _core.Probe(place_alone(replace(of_draft, n_ctx=n_ctx, n_batch=n_batch, n_ubatch=n_batch)))
        acceptance, log_p = Acceptance.none(N_GUESSES), []
        for tokens, n_prompt in self.texts:
            right, chances = _read(probe, tokens, n_batch, self.ends)
            acceptance += runs(right[n_prompt - 1 :], N_GUESSES)
            log_p += chances[n_prompt - 1 :]
        return Score(tuple(acceptance.by_position), acceptance.mean_length, float(np.mean(log_p)))

    @property
    def _n_most(self) -> int:
        """Tokens that a text adds to its prompt at most."""
        return max(self.n_tokens, max(LENGTHS) + 9, 48)

    def _alone(self) -> float:
        """Milliseconds a token. Raises DuoError."""
        with self._duo(None) as d:
            texts, records = TuningTexts(d, PROMPTS), []
            for prompt in fitting(d, self.prompts, self._n_most, PROMPTS):
                self.progress("the target alone")
                records.append(texts.write_all(prompt, min(self.n_tokens, N_PLAIN), PLAIN))
        return _token_ms(records)

    def _duo(self, draft: Path | None) -> Duo:
        """The pair; draft None: the target alone."""
        engine = self.engine
        if draft is None:
            engine = {name: value for name, value in engine.items() if not name.endswith("_draft")}
        return _Passing(self.target, draft, temperature=0.0, seed=1, **{**engine, "n_parallel": 1})


def _token_ms(records: Sequence[AnswerRecord]) -> float:
    """Milliseconds per token: the median of the plain texts."""
    return statistics.median(1e3 * r.seconds / r.n_timed for r in records if r.arm == PLAIN and r.n_timed)


def _read(
    probe: _core.Probe, tokens: Sequence[int], n_batch: int, never: Sequence[int]
) -> tuple[list[bool], list[float]]:
    """For each token but the last: whether the model guesses the next one, and its log-probability (nats).
    never: tokens that are no guesses."""
    n_pass = max(1, min(n_batch, N_LOGITS // probe.n_vocab))
    right: list[bool] = []
    log_p: list[float] = []
    for first in range(0, len(tokens) - 1, n_pass):
        rows = tokens[first : min(first + n_pass, len(tokens) - 1)]
        probe.decode(rows, first)
        logits = np.array(probe.logits())
        logits[:, never] = -np.inf
        after = np.asarray(tokens[first + 1 : first + 1 + len(rows)])
        own = logits[np.arange(len(rows)), after]
        top = logits.max(axis=1)
        right += (logits.argmax(axis=1) == after).tolist()
        # A token that the draft never proposes (--draft-vocab) has no chance.
        log_p += np.maximum(own - top - np.log(np.exp(logits - top[:, None]).sum(axis=1)), LEAST_LOG_P).tolist()
    return right, log_p
