"""States: what the models' caches hold of a text, as an object."""

import dataclasses
import os
import pickle
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from kept_text import DRAFT, GREEDY, LOAD, PROMPT, SEEDED, TARGET, loaded, without_state
from waits import HANG_S, join

from duo import BadValueError, BusyError, Duo, DuoError
from duo.generation.session import EngineSession
from duo.generation.state import State
from duo.gguf_tools.switched_duo import SwitchedDuo
from duo.placement import model_hash


@pytest.fixture(scope="module")
def right() -> dict[str, tuple[int, ...]]:
    return without_state()


def written_by_both(d: Duo) -> State:
    """The state after a text. On a busy machine a text may be over before its draft has read the prompt."""
    for _ in range(50):
        d.generate(PROMPT, mode="sync", n_draft=2, **GREEDY)
        state = d.save_state()
        if state.draft is not None and len(state.draft.head.tokens) >= len(d.tokenize(PROMPT)) - 1:
            return state
    raise AssertionError("the draft never read the prompt")


# ---- save_state, load_state


def test_a_state_spares_the_prompt_and_changes_no_bit(right: dict[str, tuple[int, ...]]) -> None:
    with loaded() as d:
        state = written_by_both(d)
        n = len(d.tokenize(PROMPT))
        assert list(state.input_ids[:n]) == d.tokenize(PROMPT)
        assert state.n_tokens >= n + 38
        assert state.llama_state_size == len(state.llama_state) > 1000 * n
    assert len(repr(state)) < 2000  # it has megabytes
    state = pickle.loads(pickle.dumps(state))
    with loaded() as d:
        for mode in ("plain", "sync", "async"):
            for name, o in (("greedy", GREEDY), ("seeded", SEEDED)):
                d.generate("Something else", **GREEDY | {"max_tokens": 2})
                d.load_state(state)
                r = d.generate(PROMPT, mode=mode, n_draft=4, **o)
                assert r.tokens == right[name]
                assert r.timings["cache_n"] == n - 1
                assert mode != "sync" or r.timings["draft_n"] > 0
        assert d.generate("Something else", **GREEDY).timings["cache_n"] < 3


def test_the_drafts_cache_comes_back_too() -> None:
    with loaded() as d:
        state = written_by_both(d)
    # Steps of one batch each: the draft reads the prompt in more of them than it needs for the guesses.
    with SwitchedDuo(TARGET, DRAFT, always=True, n_batch=16, **LOAD) as d:
        d.load_state(state)
        few = d.generate(PROMPT, mode="sync", n_draft=2, **GREEDY).timings["draft_steps_n"]
        d.generate("Something else", **GREEDY)
        many = d.generate(PROMPT, mode="sync", n_draft=2, **GREEDY).timings["draft_steps_n"]
    assert many >= few + state.n_tokens // 16 - 4


def test_a_state_of_another_kind_is_refused() -> None:
    with loaded() as d:
        d.generate(PROMPT, **GREEDY)
        state = d.save_state()
        ok = d.generate(PROMPT, **GREEDY).tokens
        head, saved = state.target.head, state.target.saved
        for i in (0, 20, len(saved) // 2, len(saved) - 1):
            bad = bytearray(saved)
            bad[i] ^= 16
            damaged = dataclasses.replace(state, target=dataclasses.replace(state.target, saved=bytes(bad)))
            with pytest.raises(BadValueError, match="this state is damaged; evaluate the text again"):
                d.load_state(damaged)
        for other in (head.tokens[:-3], (*head.tokens, 5), (head.tokens[0], -1, *head.tokens[2:])):
            moved = dataclasses.replace(head, tokens=other)
            with pytest.raises(BadValueError, match="this state is damaged"):
                d.load_state(dataclasses.replace(state, target=dataclasses.replace(state.target, head=moved)))
        with pytest.raises(BadValueError, match="load_state got str"):
            d.load_state("state")  # type: ignore[arg-type]
        assert d.generate(PROMPT, **GREEDY).tokens == ok
    for options, what in (
        ({"n_ctx": 256}, "context size"),
        ({"type_k": "q8_0"}, "cache type"),
        ({"rope_freq_base": 9e4}, "RoPE"),
    ):
        with loaded(**options) as d, pytest.raises(BadValueError, match=f"was made with another {what}"):
            d.load_state(state)
    with Duo(DRAFT, **LOAD) as d, pytest.raises(BadValueError, match="was made with another model"):
        d.load_state(state)
    with Duo(TARGET, **LOAD) as d:  # without the draft
        d.load_state(state)
        assert d.generate(PROMPT, **GREEDY).tokens == ok


def test_a_file_that_was_touched_while_it_was_loaded_has_a_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_hash, "TOO_NEW_S", -HANG_S)
    target = Path(shutil.copy(TARGET, tmp_path / "target.gguf"))
    model_hash.model_hash(str(target))  # it is remembered, as after the first start with a draft
    with Duo(target, n_ctx=64) as d:
        os.utime(target, (0, 0))
        d.save_state()
    model_hash.model_hash(str(target))
    with Duo(target, n_ctx=64) as d:
        os.replace(shutil.copy(DRAFT, tmp_path / "new"), target)
        with pytest.raises(DuoError, match="has changed since it was loaded"):
            d.save_state()


def test_a_file_that_was_replaced_while_it_was_loaded_has_no_state(tmp_path: Path) -> None:
    """Its name now stands for another model, which must not get the cache."""
    target = Path(shutil.copy(TARGET, tmp_path / "target.gguf"))
    with Duo(target, n_ctx=64) as d:
        d.generate("Once", max_tokens=2)
        os.replace(shutil.copy(TARGET, tmp_path / "new"), target)
        for _ in range(2):
            with pytest.raises(DuoError, match="has changed since it was loaded, so no cache can be saved"):
                d.save_state()
        assert d.generate("Once", max_tokens=2).text
    with Duo(target, n_ctx=64) as d:
        d.save_state()
        os.replace(shutil.copy(TARGET, tmp_path / "new"), target)
        d.save_state()  # what was loaded is known already


def test_ctrl_c_while_a_state_is_begun_leaves_the_duo_usable(
    right: dict[str, tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with loaded() as d:
        engine = d.engine

        class Interrupted:
            def __getattr__(self, name: str) -> Any:
                return getattr(engine, name)

            def begin_errand(self, *arguments: Any) -> None:
                engine.begin_errand(*arguments)
                raise KeyboardInterrupt

        with monkeypatch.context() as m:
            m.setattr(EngineSession, "engine", property(lambda _: Interrupted()))
            with pytest.raises(KeyboardInterrupt):
                d.save_state()
        assert d.generate(PROMPT, **GREEDY).tokens == right["greedy"]


def test_states_wait_for_their_turn(right: dict[str, tuple[int, ...]]) -> None:
    with loaded() as d:
        state = d.save_state()  # of nothing
        assert state.n_tokens == 0
        d.load_state(state)
        with d.stream(PROMPT, **GREEDY) as s:
            next(s)
            for call in (d.save_state, lambda: d.load_state(state)):
                with pytest.raises(BusyError):
                    call()
            saved: list[Any] = []
            thread = threading.Thread(target=lambda: saved.append(d.save_state()))
            thread.start()
            rest = [c.token for c in s if c.token is not None]
        join(thread)
        assert tuple(rest) == right["greedy"][1:]
        assert saved[0].n_tokens > len(rest)
    with pytest.raises(Exception, match="closed"):
        d.save_state()


def test_the_seed_is_part_of_a_state() -> None:
    with loaded(seed=17, n_ctx=128) as d:
        state = d.save_state()
        d.set_seed(4)
        d.load_state(state)
        assert d.generate("Once", max_tokens=2).seed == 17
