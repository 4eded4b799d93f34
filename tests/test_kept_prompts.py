"""Prompts that leave the target's cache and come back from RAM, and saved states beside several texts."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import EXACT
from gguf_files import tiny_gemma3
from prompts import LONG
from sizes import mostly_daily, size
from waits import join

from duo import Duo, Result, _core
from duo.errors import BadValueError
from duo.generation.errand import finish, turn
from duo.models.demo import demo_pair

pytestmark = pytest.mark.full

TARGET, DRAFT = demo_pair()
# Log-probabilities are equal only if all bits are.
GREEDY: dict[str, Any] = {"max_tokens": 30, "temperature": 0, "ignore_eos": True, "logprobs": 1}
SHORT = GREEDY | {"max_tokens": 2}


def bits(r: Result) -> list[tuple[int, float]]:
    return [(x.token, x.logprob) for x in r.logprobs]


@pytest.fixture(scope="module")
def right() -> Iterator[dict[str, list[tuple[int, float]]]]:
    with Duo(TARGET, n_ctx=1024, **EXACT) as d:
        found = {}
        for p in LONG:
            d.generate("x", **GREEDY)
            found[p] = bits(d.generate(p, **GREEDY))
        yield found


def check_usage(d: Duo) -> None:
    """The target's cache holds what its worker knows of, and nothing else."""
    with turn(d.session):
        held = finish(d.session, _core.Errand("look")).target_held
    cells = d.engine.usage["target"]["cells"]
    n = len(held) // len(cells)
    assert held == [cells[i // n] if i % n == 0 else 0 for i in range(len(held))]


def test_a_prompt_comes_back_with_the_same_bits(right: dict[str, list[tuple[int, float]]]) -> None:
    with Duo(TARGET, DRAFT, n_ctx=1024, cache_ram=64, **EXACT) as d:
        for turn_ in range(size(2, 3)):
            for p in LONG[:3]:
                r = d.generate(p, **GREEDY)
                assert bits(r) == right[p]
                n = 0 if turn_ == 0 else len(d.tokenize(p)) - 1
                assert r.timings["cache_ram_n"] == n
                assert r.timings["cache_n"] == n or turn_ == 0
        usage = d.engine.usage["target"]
        assert usage["n_kept"] == 3 and 0 < usage["kept_bytes"] < 64 << 20
        # Half of a kept prompt, and then another one.
        half = d.tokenize(LONG[0])[:150] + d.tokenize(LONG[1])[:50]
        r = d.generate(half, **GREEDY)
        assert r.timings["cache_ram_n"] >= 150
        check_usage(d)
    with Duo(TARGET, n_ctx=1024, **EXACT) as d:
        assert bits(d.generate(half, **GREEDY)) == bits(r)


def test_nothing_is_kept_without_the_option_and_never_more_than_it_says() -> None:
    with Duo(TARGET, n_ctx=1024, **EXACT) as d:
        for p in LONG[:2] * 2:
            assert d.generate(p, **SHORT).timings["cache_ram_n"] == 0
        assert d.engine.usage["target"]["kept_bytes"] == 0
    with Duo(TARGET, n_ctx=1024, cache_ram=4, **EXACT) as d:
        for p in [*LONG, *LONG[-2:]]:
            d.generate(p, **SHORT)
            assert d.engine.usage["target"]["kept_bytes"] <= 4 << 20
        assert d.engine.usage["target"]["n_kept"] > 0
    with Duo(TARGET, n_ctx=1024, cache_ram=-1, **EXACT) as d:
        for p in LONG:
            d.generate(p, **SHORT)
        assert d.engine.usage["target"]["n_kept"] == len(LONG) - 1
    for bad in (-2, "much"):
        with pytest.raises(BadValueError, match="cache_ram"):
            Duo(TARGET, cache_ram=bad)


# The cache holds three of these texts: the others are pushed out or parked, and their cells are never in order.
@pytest.mark.random
@pytest.mark.parametrize("n", mostly_daily([2, 4], [2]))
def test_prompts_come_back_in_company_with_the_same_bits(right: dict[str, list[tuple[int, float]]], n: int) -> None:
    asked = [LONG[(i * 7 + i // 5) % 5] for i in range(size(8, 25))]
    got: dict[int, Result] = {}
    with Duo(TARGET, DRAFT, n_ctx=1024, n_parallel=n, cache_ram=64, **EXACT) as d:

        def work(first: int) -> None:
            for i in range(first, len(asked), n + 1):
                got[i] = d.generate(asked[i], **GREEDY, mode=("async", "plain", "sync")[i % 3])

        threads = [threading.Thread(target=work, args=(i,)) for i in range(n + 1)]
        for t in threads:
            t.start()
        join(*threads)
        check_usage(d)
        # What the threads' order left to chance: all are kept now, and come back into a cache that is in use.
        for p in LONG * size(1, 2):
            other = d.stream(LONG[(LONG.index(p) + 1) % 5], **GREEDY)
            next(other)
            r = threaded(d, p)
            assert bits(r) == right[p]
            assert r.timings["cache_n"] > 100
            rest = list(other)
            assert len(rest) > 20
        check_usage(d)
    assert [i for i in range(len(asked)) if bits(got[i]) != right[asked[i]]] == []


def threaded(d: Duo, prompt: str) -> Result:
    """In a thread of its own: this one reads another text."""
    found: list[Result] = []
    t = threading.Thread(target=lambda: found.append(d.generate(prompt, **GREEDY)))
    t.start()
    join(t)
    return found[0]


# ---- states


@pytest.mark.daily
def test_states_beside_several_texts(right: dict[str, list[tuple[int, float]]], tmp_path: Path) -> None:
    with Duo(TARGET, DRAFT, n_ctx=2048, n_parallel=4, **EXACT) as d:
        d.generate_many(LONG[:3], **GREEDY)
        d.generate(LONG[3], **GREEDY)
        state = d.save_state()
        ids = d.tokenize(LONG[3])
        assert list(state.input_ids[: len(ids)]) == ids
    with Duo(TARGET, DRAFT, n_ctx=2048, **EXACT) as d:
        d.generate(LONG[4], **GREEDY)
        of_one = d.save_state()
    for n in (1, 3):
        with Duo(TARGET, DRAFT, n_ctx=2048, n_parallel=n, **EXACT) as d:
            d.generate_many(LONG[:2], **GREEDY)
            for s, p in ((state, LONG[3]), (of_one, LONG[4])):
                d.load_state(s)
                r = d.generate(p, **GREEDY)
                assert bits(r) == right[p]
                assert r.timings["cache_n"] == len(d.tokenize(p)) - 1
            if n > 1:
                check_usage(d)
                many = d.generate_many(LONG, **GREEDY)
                assert [bits(r) for r in many] == [right[p] for p in LONG]


def test_a_restored_text_has_the_bits_of_an_evaluated_one(right: dict[str, list[tuple[int, float]]]) -> None:
    with Duo(TARGET, n_ctx=1024, **EXACT) as d:
        d.generate(LONG[0], **GREEDY)
        state = d.save_state()
    with Duo(TARGET, n_ctx=1024, **EXACT) as d:  # a context that has evaluated nothing
        d.load_state(state)
        r = d.generate(LONG[0], **GREEDY)
        assert (bits(r), r.timings["cache_n"] > 100) == (right[LONG[0]], True)


@pytest.mark.daily
def test_errands_wait_for_running_texts_and_hold_back_others(right: dict[str, list[tuple[int, float]]]) -> None:
    with Duo(TARGET, DRAFT, n_ctx=2048, n_parallel=3, cache_ram=16, **EXACT) as d:
        stop = threading.Event()
        wrong: list[str] = []

        def write(i: int) -> None:
            while not stop.is_set():
                p = LONG[i]
                wrong.extend([] if bits(d.generate(p, **GREEDY)) == right[p] else [p])

        threads = [threading.Thread(target=write, args=(i,)) for i in range(4)]
        for t in threads:
            t.start()
        states = [d.save_state() for _ in range(3)]
        for s in states:
            d.load_state(s)
        scored = d.create_completion(LONG[4], max_tokens=1, temperature=0, echo=True, logprobs=1)
        stop.set()
        join(*threads)
        check_usage(d)
    assert wrong == []
    assert any(s.n_tokens > 100 for s in states)
    with Duo(TARGET, n_ctx=2048, **EXACT) as d:
        alone = d.create_completion(LONG[4], max_tokens=1, temperature=0, echo=True, logprobs=1)
    assert scored["choices"] == alone["choices"]


@pytest.mark.daily
def test_prompt_caches_beside_several_texts(right: dict[str, list[tuple[int, float]]], tmp_path: Path) -> None:
    files = {p: tmp_path / str(i) for i, p in enumerate(LONG)}
    for n in (3, 1, 3):
        with Duo(TARGET, DRAFT, n_ctx=2048, n_parallel=n, **EXACT) as d:
            found: dict[str, Result] = {}

            def write(p: str, d: Duo = d, found: dict[str, Result] = found) -> None:
                found[p] = d.generate(p, **GREEDY, prompt_cache=files[p])

            threads = [threading.Thread(target=write, args=(p,)) for p in LONG]
            for t in threads:
                t.start()
            for t in threads:
                join(t)
            assert {p: bits(r) for p, r in found.items()} == right
        there = [p for p in LONG if files[p].exists()]
    assert len(there) >= 3  # the others were pushed out before they were saved, and said so
    with Duo(TARGET, n_ctx=2048, **EXACT) as d:
        for p in there:
            assert d.generate(p, **GREEDY, prompt_cache=files[p]).timings["cache_n"] == len(d.tokenize(p)) - 1


def test_a_sliding_window(tmp_path: Path) -> None:
    gemma = tiny_gemma3(DRAFT, tmp_path / "gemma3.gguf", window=16)
    with Duo(gemma, n_ctx=512) as d:
        ids = [d.tokenize(p)[:200] for p in LONG]
        prompts = [*ids, ids[0][:100], [*ids[1][:90], 7, 8], ids[2]]
        want = []
        for p in prompts:
            d.generate([5], **GREEDY)
            want.append(bits(d.generate(p, **GREEDY)))
    for n in (1, 3):
        with Duo(gemma, n_ctx=512, n_parallel=n, cache_ram=64) as d:
            for _ in range(2):
                assert [bits(d.generate(p, **GREEDY)) for p in prompts] == want
                assert [bits(r) for r in d.generate_many(prompts, **GREEDY)] == want
            d.generate(ids[0], **GREEDY)
            state = d.save_state()
            d.generate(ids[1], **GREEDY)
            d.load_state(state)
            assert bits(d.generate([*ids[1][:90], 7, 8], **GREEDY)) == want[6]
            d.load_state(state)
            assert bits(d.generate(ids[0][:100], **GREEDY)) == want[5]
