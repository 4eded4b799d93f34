"""CPUs and priorities of a model's threads: in passes of one row, and of several (-Cb, --cpu-strict, --prio-batch)."""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from duo import Duo
from duo.errors import BadValueError
from duo.models.demo import demo_pair
from duo.options.model import ModelOptions
from duo.options.threads import NICE
from duo.options.validate import engine_options
from duo.placement.place import place
from duo.placement.profiles import key
from duo.placement.teams import _hindrance, teams

TARGET, DRAFT = demo_pair()
CPUS = sorted(os.sched_getaffinity(0))[:2] if hasattr(os, "sched_getaffinity") else []
several = pytest.mark.skipif(len(CPUS) < 2, reason="needs two CPUs that this process may use")
TWO: dict[str, Any] = {"n_ctx": 256, "n_threads": 2, "n_threads_batch": 2}
BASE = os.getpriority(os.PRIO_PROCESS, 0) if hasattr(os, "getpriority") else 0
OTHER = 0 if NICE[-1] == BASE else -1  # a priority that this process does not have
# The last pass of a text is that of its prompt, or one of a single row.
PROMPT_ALONE: dict[str, Any] = {"temperature": 0, "max_tokens": 1, "cache_prompt": False}
LONGER: dict[str, Any] = {**PROMPT_ALONE, "max_tokens": 4, "ignore_eos": True}
Place = tuple[str, int]


def places(before: set[str]) -> Counter[Place]:
    """The CPUs and the niceness of threads that were not there before."""
    found: Counter[Place] = Counter()
    for tid in set(os.listdir("/proc/self/task")) - before:
        try:
            status = Path(f"/proc/self/task/{tid}/status").read_text()
            match = re.search(r"Cpus_allowed_list:\s+(\S+)", status)
            found[(match[1] if match else "", os.getpriority(os.PRIO_PROCESS, int(tid)))] += 1
        except OSError:  # it has ended
            pass
    return found


def after(options: dict[str, Any], *texts: dict[str, Any], draft: Path | None = None) -> list[Counter[Place]]:
    """Where the threads of a Duo are after each of these texts."""
    before = set(os.listdir("/proc/self/task"))
    with Duo(TARGET, draft, **{**TWO, **options}) as d:
        found = []
        for text in texts:
            d.generate("Once upon a time there was", **text)
            found.append(places(before))
    return found


def cpus(found: Counter[Place]) -> Counter[str]:
    return sum((Counter({place: n}) for (place, _), n in found.items()), Counter())


def mask(*chosen: int) -> str:
    return hex(sum(1 << cpu for cpu in chosen))


@several
def test_prompts_have_cpus_of_their_own() -> None:
    a, b = CPUS
    own = {"cpu_mask": mask(a), "cpu_range_batch": f"{b}-{b}"}
    for wide in (PROMPT_ALONE, LONGER, PROMPT_ALONE):
        found = cpus(after(own, wide)[0])
        assert found[str(b if wide is PROMPT_ALONE else a)] == 2, found  # the worker's thread and its team's other one
    prompt, text = after({"cpu_mask_batch": mask(b)}, PROMPT_ALONE, LONGER)
    assert cpus(prompt)[str(b)] == 2 and str(b) not in cpus(text)
    here = os.sched_getaffinity(0)
    assert here >= {*CPUS}  # the thread that loads and asks stays where it was


@several
def test_each_thread_has_a_cpu_of_the_mask() -> None:
    a, b = CPUS
    strict = {"cpu_mask": mask(a, b), "cpu_strict": "1"}
    for found in map(cpus, after(strict, PROMPT_ALONE, LONGER)):
        assert (found[str(a)], found[str(b)]) == (1, 1), found
    prompt, text = map(cpus, after({**strict, "cpu_strict_batch": "0"}, PROMPT_ALONE, LONGER))
    assert (text[str(a)], text[str(b)]) == (1, 1)
    assert str(a) not in prompt and str(b) not in prompt
    assert str(a) not in cpus(after({"cpu_strict": "1"}, LONGER)[0])  # without a mask


@several
def test_the_last_row_of_a_long_prompt_has_its_team_in_place() -> None:
    """libllama computes it as a part of its own, with the threads of passes of one row."""
    strict = {"cpu_mask": mask(*CPUS), "cpu_strict": "1", "n_threads_batch": 1, "n_ubatch": 8}
    before = set(os.listdir("/proc/self/task"))
    with Duo(TARGET, **{**TWO, **strict}) as d:
        d.generate(d.tokenize("Once upon a time there was a frog who lived in a well")[:9], **PROMPT_ALONE)
        found = cpus(places(before))
    assert [found[str(cpu)] for cpu in CPUS] == [1, 1], found


@pytest.mark.skipif(bool(_hindrance(NICE[OTHER], None)), reason="needs the right to raise the priority of a thread")
def test_priorities_are_those_of_the_pass() -> None:
    nice = NICE[OTHER]
    prompt, text = after({"prio_batch": OTHER}, PROMPT_ALONE, LONGER)
    assert [sum(n for (_, x), n in found.items() if x == nice) for found in (prompt, text)] == [2, 0]
    one = {"n_threads_draft": 1, "n_threads_batch_draft": 1, "prio_draft": OTHER, "prio_batch_draft": OTHER}
    (both,) = after(one, {**LONGER, "mode": "sync", "n_draft": 2}, draft=DRAFT)
    assert sum(n for (_, x), n in both.items() if x == nice) == 1
    assert os.getpriority(os.PRIO_PROCESS, 0) == BASE


@pytest.mark.skipif(sys.platform != "linux", reason="threads have priorities on Linux only")
def test_only_changes_that_happen_need_a_right(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0]

    def lower(_which: int, _who: int, value: int) -> None:
        if value < now[0]:
            raise PermissionError(13, "Permission denied")
        now[0] = value

    monkeypatch.setattr(os, "getpriority", lambda *_: 0)
    monkeypatch.setattr(os, "setpriority", lower)
    for narrow, wide, is_possible in ((5, 5, True), (5, None, False), (None, 5, False), (5, 0, False), (0, 0, True)):
        now[0] = 0
        assert (_hindrance(narrow, wide) == "") is is_possible


def test_the_text_is_the_same_and_nothing_is_asked_by_default() -> None:
    with Duo(TARGET, **TWO) as d, Duo(TARGET, cpu_strict=True, cpu_mask=mask(CPUS[0]) if CPUS else None, **TWO) as e:
        assert d.placed.target.narrow_team == d.placed.target.wide_team == ([], False, None)
        assert d.generate("Once", **LONGER).tokens == e.generate("Once", **LONGER).tokens


def test_defaults_of_the_four_teams() -> None:
    def made(role: Any, **options: Any) -> ModelOptions:
        return ModelOptions.of(engine_options(options), role)

    drafted = made("draft", cpu_strict="1")
    assert drafted.cpu_strict and drafted.cpu_strict_batch
    drafted = made("draft", cpu_strict="1", cpu_strict_draft="0")
    assert not drafted.cpu_strict and not drafted.cpu_strict_batch
    target = made("target", cpu_strict_draft="1", cpu_mask_batch_draft="1", prio_draft=2)
    assert teams(target) == (([], False, None), ([], False, None))
    assert teams(made("target", cpu_mask="3", cpu_strict_batch="1")) == (([0, 1], False, None), ([0, 1], True, None))
    assert teams(made("draft", cpu_mask_batch_draft="2")) == (([], False, None), ([1], False, None))
    assert made("target", cpu_mask_batch="3").chooses_threads
    own = {"cpu_mask_draft": "7", "cpu_strict_draft": "1", "cpu_strict_batch_draft": "0"}
    assert teams(made("draft", **own)) == (([2, 1, 0], True, None), ([0, 1, 2], False, None))


@several
def test_models_that_share_cpus_in_wide_passes_alone() -> None:
    a, b = CPUS

    def shared(**options: Any) -> bool:
        o = engine_options({"cpu_mask": mask(a), "cpu_mask_draft": mask(b), "device": "none", **options})
        return place(ModelOptions.of(o, "target", str(TARGET)), ModelOptions.of(o, "draft", str(DRAFT)))[0].shared

    assert not shared()
    assert shared(cpu_mask_batch=mask(a, b)) and shared(cpu_mask_batch_draft=mask(a))


@several
def test_what_a_pair_learned_is_of_its_teams() -> None:
    """Without teams of its own the key is the one of earlier versions."""

    def made(**options: Any) -> str:
        o = engine_options({"device": "none", "n_threads": 2, **options})
        return key(place(ModelOptions.of(o, "target", str(TARGET)), ModelOptions.of(o, "draft", str(DRAFT)))[0])

    plain = made()
    assert "team" not in plain and "n_threads_batch" not in plain and made(n_threads_batch=2) == plain
    others = [{"n_threads_batch": 1}, {"cpu_mask_batch": mask(*CPUS)}, {"cpu_mask": mask(*CPUS)}]
    others += [{**others[2], "cpu_strict": "1"}]
    assert len({plain, *(made(**o) for o in others)}) == 1 + len(others)


def test_what_is_not_possible(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(BadValueError, match="CPU 9999 is not available"):
        Duo(TARGET, cpu_range_batch="9999-9999")
    for name, value in (("prio_batch", 4), ("prio_draft", "high"), ("cpu_strict", "2"), ("cpu_mask_batch", "0")):
        with pytest.raises(BadValueError):
            Duo(TARGET, **{name: value})

    def refuse(*_: int) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "setpriority", refuse)
    with Duo(TARGET, n_ctx=64, n_threads=1, prio_batch=3) as d:
        assert d.generate("Once", **LONGER).text
    if CPUS:
        monkeypatch.setattr(os, "sched_setaffinity", refuse)
        teams(ModelOptions.of(engine_options({"cpu_mask": mask(CPUS[0])}), "target"))
    assert [r.getMessage() for r in caplog.records] == [
        "--prio-batch 3 is not possible here (Permission denied); the priority stays as it is",
        "the target's threads cannot be bound to CPUs here (Permission denied); they run on any CPU of this process",
    ][: 1 + bool(CPUS)]
