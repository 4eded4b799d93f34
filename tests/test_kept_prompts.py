"""Prompts that leave the target's cache and come back from RAM, and saved states beside several texts."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import EXACT
from gguf_files import tiny_gemma3, tiny_mamba

from duo import Duo, Result, _core
from duo.cli.main import main
from duo.errors import BadValue
from duo.models.demo import demo_pair
from duo.models.header import read_header
from duo.options.model import ModelOptions
from duo.placement.memory import Need
from duo.placement.resolve_auto import needs, resolve_auto
from duo.text.errand import finish, turn

TARGET, DRAFT = demo_pair()
LONG = [
    "The rain fell on the town all night, and the old clock struck. " * 20,
    "My brother and I went to the river to see the boats go by. " * 22,
    "Once upon a time there was a little girl who had a cat. " * 20,
    "In the forest lived an old man who never spoke to anybody. " * 18,
    "The king said that he would give half of his land away. " * 24,
]
# Log-probabilities are equal only if all bits are.
GREEDY: dict[str, Any] = {"max_tokens": 30, "temperature": 0, "ignore_eos": True, "logprobs": 1}


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
        for turn_ in range(3):
            for p in LONG:
                r = d.generate(p, **GREEDY)
                assert bits(r) == right[p]
                n = 0 if turn_ == 0 else len(d.tokenize(p)) - 1
                assert r.timings["cache_ram_n"] == n
                assert r.timings["cache_n"] == n or turn_ == 0
        usage = d.engine.usage["target"]
        assert usage["n_kept"] == len(LONG) and 0 < usage["kept_bytes"] < 64 << 20
        # Half of a kept prompt, and then another one.
        half = d.tokenize(LONG[0])[:150] + d.tokenize(LONG[1])[:50]
        r = d.generate(half, **GREEDY)
        assert r.timings["cache_ram_n"] >= 150
        check_usage(d)
    with Duo(TARGET, n_ctx=1024, **EXACT) as d:
        assert bits(d.generate(half, **GREEDY)) == bits(r)


def test_nothing_is_kept_without_the_option_and_never_more_than_it_says() -> None:
    with Duo(TARGET, n_ctx=1024, **EXACT) as d:
        for p in LONG[:3] * 2:
            assert d.generate(p, **GREEDY).timings["cache_ram_n"] == 0
        assert d.engine.usage["target"]["kept_bytes"] == 0
    with Duo(TARGET, n_ctx=1024, cache_ram=4, **EXACT) as d:
        for p in LONG * 2:
            d.generate(p, **GREEDY)
            assert d.engine.usage["target"]["kept_bytes"] <= 4 << 20
        assert d.engine.usage["target"]["n_kept"] > 0
    with Duo(TARGET, n_ctx=1024, cache_ram=-1, **EXACT) as d:
        for p in LONG:
            d.generate(p, **GREEDY)
        assert d.engine.usage["target"]["n_kept"] == len(LONG) - 1
    for bad in (-2, "much"):
        with pytest.raises(BadValue, match="cache_ram"):
            Duo(TARGET, cache_ram=bad)


# The cache holds three of these texts: the others are pushed out or parked, and their cells are never in order.
@pytest.mark.parametrize("n", [2, 4])
def test_prompts_come_back_in_company_with_the_same_bits(right: dict[str, list[tuple[int, float]]], n: int) -> None:
    asked = [LONG[(i * 7 + i // 5) % 5] for i in range(25)]
    got: dict[int, Result] = {}
    with Duo(TARGET, DRAFT, n_ctx=1024, n_parallel=n, cache_ram=64, **EXACT) as d:

        def work(first: int) -> None:
            for i in range(first, len(asked), n + 1):
                got[i] = d.generate(asked[i], **GREEDY, mode=("async", "plain", "sync")[i % 3])

        threads = [threading.Thread(target=work, args=(i,)) for i in range(n + 1)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        check_usage(d)
        # What the threads' order left to chance: all are kept now, and come back into a cache that is in use.
        for p in LONG * 2:
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
    t.join()
    return found[0]


# ---- states


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
        states = [d.save_state() for _ in range(5)]
        for s in states:
            d.load_state(s)
        scored = d.create_completion(LONG[4], max_tokens=1, temperature=0, echo=True, logprobs=1)
        stop.set()
        for t in threads:
            t.join()
        check_usage(d)
    assert wrong == []
    assert any(s.n_tokens > 100 for s in states)
    with Duo(TARGET, n_ctx=2048, **EXACT) as d:
        alone = d.create_completion(LONG[4], max_tokens=1, temperature=0, echo=True, logprobs=1)
    assert scored["choices"] == alone["choices"]


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
                t.join()
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
    for n in (1, 2, 3):
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


# ---- as many texts as fit


def of_both(**options: Any) -> tuple[ModelOptions, ModelOptions]:
    from duo.options.validate import engine_options

    o = engine_options({"n_parallel": "auto", "device": "none", **options})
    return ModelOptions.of(o, "target", str(TARGET)), ModelOptions.of(o, "draft", str(DRAFT))


def total(n_contexts: int, **options: Any) -> int:
    from dataclasses import replace

    found = [replace(m, n_contexts=n_contexts) for m in of_both(**options)]
    need: list[Need] = needs(found[0], found[1], [read_header(TARGET), read_header(DRAFT)])
    return sum(n.total for n in need)


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_as_many_texts_as_memory_allows(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    size = total(n, n_ctx=8192)
    assert size < total(n + 1, n_ctx=8192)
    monkeypatch.setattr(_core, "memory_available", lambda: size * 16 // 15 + 100)  # a sixteenth stays free
    target, draft, _ = resolve_auto(*of_both(n_ctx=8192), [])
    assert draft is not None
    assert (target.n_parallel, target.n_contexts, draft.n_parallel, draft.n_contexts) == (n, n, n, n)


def test_the_cache_of_auto_is_as_large_as_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Duo(TARGET, DRAFT, n_ctx=300, n_parallel="auto", log_file=tmp_path / "log", **EXACT) as d:
        n = d.n_parallel
        assert n == 4  # on every machine that runs tests
        assert d.target.n_ctx == 300
        found = d.generate_many([p[:600] for p in LONG], **GREEDY)
        many = [r.tokens for r in found]
        headers = [read_header(TARGET), read_header(DRAFT)]
        target, draft, _ = resolve_auto(*of_both(n_ctx=300), [])
        sizes = [round(x.total_cache / 2**20, 2) for x in needs(target, draft, headers)]
    log = (tmp_path / "log").read_text()
    assert sizes == [float(x) for x in re.findall(r"llama_kv_cache: size = +([\d.]+) MiB", log)]
    with Duo(TARGET, n_ctx=300, **EXACT) as d:
        assert d.n_parallel == 1
        assert [d.generate(p[:600], **GREEDY).tokens for p in LONG] == many
    file = tmp_path / "prompts.jsonl"
    file.write_text("\n".join(json.dumps(p[:300]) for p in LONG))
    arguments = [
        "-m",
        str(TARGET),
        "-f",
        str(file),
        "-np",
        "auto",
        "-cram",
        "16",
        "-n",
        "8",
        "--temp",
        "0",
        "-c",
        "300",
    ]
    assert main(arguments) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(LONG)


def test_auto_gives_a_recurrent_model_several_texts(tmp_path: Path) -> None:
    mamba = tiny_mamba(DRAFT, tmp_path / "mamba.gguf")
    asked: dict[str, Any] = {"max_tokens": 5, "temperature": 0, "ignore_eos": True}
    with Duo(mamba, n_ctx=256, n_parallel="auto") as d:
        assert d.n_parallel == 4
        found = [r.tokens for r in d.generate_many(["a b c", "the old king", "once"], **asked)]
    with Duo(mamba, n_ctx=256) as d:
        assert found == [d.generate(p, **asked).tokens for p in ("a b c", "the old king", "once")]
