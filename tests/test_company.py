"""Many texts at once: each has its own tokens, and nothing is left of any. `-m proof` runs the long ones."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from company import PROMPTS, alone, at_once, open_streams, requests, same, storm
from conftest import EXACT, HANG_S

from duo import Duo, _core
from duo.generation.errand import finish, turn
from duo.gguf_tools.switched_duo import SwitchedDuo

pytestmark = pytest.mark.full

LENGTH = 24


@pytest.fixture(scope="module")
def one() -> Iterator[Duo]:
    with Duo(n_ctx=2048, **EXACT) as d:
        yield d


@pytest.fixture
def proved() -> Callable[..., None]:
    """Adds a line to the file that DUO_PROOF names: what a run of `make proof` has shown."""

    def add(what: str, **figures: Any) -> None:
        if name := os.environ.get("DUO_PROOF"):
            with Path(name).open("a") as file:
                file.write(json.dumps({"what": what, **figures}) + "\n")

    return add


# ---- the same tokens as alone


@pytest.mark.parametrize(
    ("n_parallel", "n", "seed"),
    [(4, 10, 1), *(pytest.param(n, 200, 2, marks=pytest.mark.proof) for n in (1, 2, 4, 8))],
)
def test_texts_in_company_are_those_written_alone(
    n_parallel: int, n: int, seed: int, one: Duo, proved: Callable[..., None]
) -> None:
    asked = requests(n, seed)
    want = alone(one, asked)
    with SwitchedDuo(n_ctx=4096, n_parallel=n_parallel, always=True, **EXACT) as d:
        got = at_once(d, asked, n_parallel + 2)
    wrong = [i for i in range(n) if not same(got[i], want[i])]
    n_drafted = sum(r.timings.get("draft_n_accepted", 0) for r in got)
    # By turns: whether a guess comes in time is no matter of luck.
    n_by_turns = sum(
        r.timings.get("draft_n_accepted", 0) for (_, o), r in zip(asked, got, strict=True) if o["mode"] == "sync"
    )
    proved("same tokens as alone", n_parallel=n_parallel, requests=n, equal=n - len(wrong), accepted=n_drafted)
    assert not wrong, [(asked[i], got[i].text, want[i].text) for i in wrong[:2]]
    assert n_by_turns > n / 8  # drafts had a part in them
    assert not [r.warning for r in got if r.warning]


# ---- nothing is left


def settled(d: Duo) -> _core.Usage:
    """What the engine holds when its draft has heard of the last text's end."""
    until = time.monotonic() + HANG_S
    while True:
        usage = d.engine.usage
        if usage["draft"]["n_active"] + usage["n_unfreed"] == 0 or time.monotonic() > until:
            return usage
        time.sleep(0.01)


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.daily
@pytest.mark.parametrize(("n", "seed"), [(120, 1), pytest.param(2000, 2, marks=pytest.mark.proof)])
def test_tasks_that_come_and_go_leave_nothing(n: int, seed: int, one: Duo, proved: Callable[..., None]) -> None:
    greedy: dict[str, Any] = {"max_tokens": LENGTH, "temperature": 0, "ignore_eos": True}
    right = {p: one.generate(p, **greedy).tokens for p in PROMPTS}
    n_streams = open_streams()
    with Duo(n_ctx=1024, n_parallel=4, **EXACT) as d:

        async def storms() -> tuple[dict[str, int], int, int]:
            await storm(d, 64, 32, seed + 1, right)  # the pool of the loop has its threads
            n_threads, n_bytes = threading.active_count(), resident_bytes()
            ends = await storm(d, n, 32, seed, right)
            await asyncio.sleep(0)
            assert threading.active_count() <= n_threads
            return dict(ends), n_bytes, resident_bytes()

        ends, bytes_before, bytes_after = asyncio.run(storms())
        usage = settled(d)
        with turn(d.session):
            look = finish(d.session, _core.Errand("look"))
        assert open_streams() == n_streams
        assert not d.session.turns.owners
    proved("nothing is left", requests=n, ends=ends, usage=usage, bytes_before=bytes_before, bytes_after=bytes_after)
    assert sum(ends.values()) == n
    assert min(ends.get(x, 0) for x in ("whole", "cancelled", "left", "gathered", "gather cancelled")) > 0
    assert (usage["n_open"], usage["n_queued"], usage["n_unfreed"], usage["n_threads"]) == (0, 0, 0, 2)
    for worker in (usage["target"], usage["draft"]):
        assert (worker["n_active"], worker["n_parked"]) == (0, 0)
        assert worker["n_branches"] <= 4  # one for each slot's last text
        assert len(worker["cells"]) == 4
        assert max(worker["cells"]) <= LENGTH + 16
    assert usage["target"]["n_begins"] <= 4
    held = [x for x in look.target_held if x]
    assert sorted(held) == sorted(x for x in usage["target"]["cells"] if x)
    assert bytes_after - bytes_before < 64 << 20
