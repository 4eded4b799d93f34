"""The measurements of `duo tune` on a loaded pair: pass times by width, draft steps, acceptance, speed of each mode."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence

from duo.benchmark.advice import advise
from duo.benchmark.bench.arms import PLAIN, Arm
from duo.benchmark.bench.bound import best_sync, overlapped_bound, taking_turns
from duo.benchmark.bench.costs import Costs
from duo.benchmark.bench.measures import modelled
from duo.benchmark.bench.record import AnswerRecord
from duo.benchmark.sharing import sharing_of
from duo.benchmark.tuning import Tuning
from duo.errors import BadValueError, ContextFullError, DuoError
from duo.model import Duo
from duo.options.generate import GenerateOptions
from duo.placement import profiles

LENGTHS = (1, 2, 3, 4, 6, 8, 12, 16)  # drafted tokens in a pass, which has one row more
TOO_WIDE = 8.0  # the widest pass to measure is the first that takes longer than so many passes over one token
N_PLAIN, N_BESIDE, N_AUTO, N_RACE = 48, 8, 64, 48  # tokens; N_BESIDE: in addition to the width of the pass
N_TEXTS = 3
BOUND = "async, at most"
AUTO = Arm("async auto", "async", "auto")

# duo's defaults, not those of this Duo: the recommended command line uses them.
FIXED: GenerateOptions = {
    "n_draft_min": 0,
    "n_draft_branches": "auto",
    "draft_window": "auto",
    "draft_tree": "auto",
    "draft_p_min": 0.0,
    "spec_type": ["draft-simple"],
    "stop": [],
    "logprobs": None,
}

Progress = Callable[[str], None]


class TuningTexts:
    """Generates texts with a Duo; each is a Record with the figures of the engine. flag: that gives other prompts."""

    def __init__(self, duo: Duo, flag: str = "-f") -> None:
        self._duo, self.flag = duo, flag
        seed = duo.defaults.get("seed", 1)
        # One seed for all texts: arms are compared on the same text.
        self._seed = seed if seed >= 0 else secrets.randbits(63)

    def write(self, prompt: str, n: int, arm: Arm) -> AnswerRecord:
        """Raises DuoError, also if the draft fails."""
        return self._write(prompt, n, arm, {})

    def write_all(self, prompt: str, n: int, arm: Arm) -> AnswerRecord:
        """Goes on where the model would stop. The draft reads the whole prompt and guesses even if that does not pay.
        Raises DuoError, also if the draft fails."""
        with self._duo.session.speculating_always():
            # A window of "auto" may read nothing for a short text.
            return self._write(prompt, n, arm, {"ignore_eos": True, "draft_window": "all"})

    def _write(self, prompt: str, n: int, arm: Arm, more: GenerateOptions) -> AnswerRecord:
        options: GenerateOptions = {**FIXED, "max_tokens": n, "mode": arm.local_mode, "n_draft": arm.n_draft or "auto"}
        options["seed"] = self._seed
        options |= more
        r = self._duo.generate(prompt, **options)
        if r.warning:
            raise DuoError(f"the measurement failed: {r.warning}")
        return AnswerRecord(arm, prompt, "", 0, 0, r.tokens, (), r.timings)


def fitting(duo: Duo, prompts: Sequence[str], n_tokens: int = N_AUTO, flag: str = "-f") -> list[str]:
    """N_TEXTS of the prompts, spread evenly over the list, or fewer. n_tokens: that a text adds to a prompt at most.
    flag: that gives other prompts. Raises ContextFullError: none fits."""
    n_most = min(m.n_ctx for m in (duo.target, duo.draft) if m is not None) - n_tokens
    fits = [p for p in prompts if 0 < len(duo.tokenize(p, special=True)) <= n_most]
    if not fits:
        raise ContextFullError(
            f"no prompt fits the context with {n_tokens} more tokens; raise -c or give shorter prompts ({flag})"
        )
    n = min(N_TEXTS, len(fits))
    return [fits[i * len(fits) // n] for i in range(n)]


def sync(k: int) -> Arm:
    """Turn-taking with k guesses in each pass."""
    return Arm(f"sync {k}", "sync", k)


def measure_widths(t: Tuning, texts: TuningTexts, prompts: Sequence[str], progress: Progress) -> None:
    """Sets pass_ms and step_alone_ms. The draft waits during each pass, so the models do not slow each other down."""
    progress("plain decoding")
    plain = texts.write_all(prompts[0], N_PLAIN, PLAIN)
    times = {1: 1e3 * plain.seconds / max(1, plain.n_timed)}
    last = LENGTHS[-1]
    for prompt in dict.fromkeys((prompts[0], prompts[-1])):
        for k in LENGTHS:
            if k > last:
                break
            progress(f"passes over {k + 1} tokens")
            timings = texts.write_all(prompt, k + 1 + N_BESIDE, sync(k)).timings
            t.step_alone_ms = timings["step_ms"].get("1", t.step_alone_ms)
            for rows, ms in timings["pass_ms"].items():
                # Disturbances only make a pass slower, so the lowest value counts.
                times[int(rows)] = min(ms, times.get(int(rows), ms))
            if times.get(k + 1, 0.0) > TOO_WIDE * times[1]:
                last = k
    t.pass_ms = {w: times[w] for w in (1, *(k + 1 for k in LENGTHS if k <= last)) if w in times}
    if len(t.pass_ms) < 2 or t.step_alone_ms is None:
        raise BadValueError(
            f"this pair makes no guesses that could be measured; give other prompts ({texts.flag}), and see what "
            "`duo check` says"
        )


def _measure_both(t: Tuning, texts: TuningTexts, prompts: Sequence[str], progress: Progress) -> list[AnswerRecord]:
    """Sets the figures that are measured while both models work."""
    records = []
    for i, prompt in enumerate(prompts, 1):
        progress(f"both models at once, text {i} of {len(prompts)}")
        records.append(texts.write(prompt, N_AUTO, AUTO))
    timings = records[-1].timings  # costs and acceptance cover all texts so far
    t.step_ms = {int(n): ms for n, ms in timings["step_ms"].items()}
    t.acceptance, t.slowdown = timings["acceptance_by_level"], timings["slowdown"]
    busy = [r.timings["draft_busy_share"] * r.timings["total_ms"] for r in records]
    hidden = sum(b * (r.timings["draft_hidden_share"] or 0.0) for b, r in zip(busy, records, strict=True))
    t.hidden_share = hidden / sum(busy) if sum(busy) else 0.0
    return records


def _expect(t: Tuning, auto: Sequence[AnswerRecord]) -> None:
    """Sets n_sync and expected from the formulas of duo.benchmark.bench.bound."""
    alone = Costs(t.pass_ms, {1: t.step_alone_ms or 0.0})
    beside = Costs({w: ms * t.slowdown for w, ms in t.pass_ms.items()}, t.step_ms or alone.step_ms)
    k_most = max(t.pass_ms) - 1
    plain = 1e3 / t.pass_ms[1]
    t.expected["plain"] = plain
    v, c = alone.v, alone.c
    assert v is not None and c is not None
    t.n_sync = best_sync(t.acceptance, c, v, k_most)[0]
    for k in sorted({*(k for k in LENGTHS if k <= k_most), t.n_sync}):
        t.expected[f"sync {k}"] = plain * taking_turns(t.acceptance, c, v, k)
    # While both models work a pass takes longer, so the unit of these two speeds is longer.
    unit = plain / t.slowdown
    if (speed := modelled(auto, beside)) is not None:
        t.expected[AUTO.name] = unit * speed
    v, c = beside.v, beside.c
    if v is not None and c is not None:
        t.expected[BOUND] = max(plain, unit * overlapped_bound(t.acceptance, c, v, k_most))


def race(t: Tuning, texts: TuningTexts, prompts: Sequence[str], progress: Progress) -> None:
    """Sets measured: every arm writes each prompt before the next one, in rotating order."""
    arms = [PLAIN, sync(t.n_sync), AUTO]
    records = []
    for i, prompt in enumerate(prompts):
        for arm in [*arms[i % 3 :], *arms[: i % 3]]:
            progress(f"the race, text {i + 1} of {len(prompts)}: {arm.name}")
            records.append(texts.write(prompt, N_RACE, arm))
    for arm in arms:
        t.measured[arm.name] = speed_of([r for r in records if r.arm == arm], texts.flag)


def speed_of(records: Sequence[AnswerRecord], flag: str = "-f") -> float:
    """Tokens/s of these texts together. Raises BadValueError: all ended immediately."""
    timed = [r for r in records if r.n_timed]
    if not timed:
        raise BadValueError(f"the model ends every text immediately; give other prompts ({flag})")
    return sum(r.n_timed for r in timed) / sum(r.seconds for r in timed)


def tune(duo: Duo, prompts: Sequence[str], progress: Progress = lambda _: None) -> Tuning:
    """Measures the loaded pair and saves its profile for later runs. Takes a few hundred passes of the target.

    Sampling uses the defaults of this Duo. Raises BadValueError: no draft, or unsuitable prompts. Raises
    ContextFullError: no prompt fits. Raises DuoError: a model fails.
    """
    if duo.draft is None:
        raise BadValueError("duo tune measures a pair and there is no draft; give it with -md")
    chosen = fitting(duo, prompts)
    with duo.session.between_texts() as engine:  # figures of an earlier run must not be mixed with these
        engine.forget_profile()
    t, texts = Tuning(sharing=sharing_of(duo)), TuningTexts(duo)
    measure_widths(t, texts, chosen, progress)
    _expect(t, _measure_both(t, texts, chosen, progress))
    race(t, texts, chosen, progress)
    t.advice = advise(t)
    with duo.session.between_texts() as engine:
        numbers = engine.profile()
    note = ", ".join(f"{name} {speed:.1f}" for name, speed in t.measured.items()) + " tokens/s"
    if duo.profile_key and profiles.save(duo.profile_key, numbers, note):
        t.saved = str(profiles.cache_file())
    return t
