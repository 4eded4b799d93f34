"""States: what the models' caches hold of a text, as an object and as a file that a later run reads."""

import asyncio
import dataclasses
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import EXACT, HANG_S, start_duo
from gguf_files import tiny_gemma3, tiny_mamba
from hosts import KERNELS, host

from duo import BadValue, Busy, Duo
from duo.models.demo import demo_pair
from duo.text.job import prepare
from duo.text.session import Session
from duo.text.state import State

TARGET, DRAFT = demo_pair()
PROMPT = "The rain fell on the town all night, and the old clock struck. " * 12
LOAD: dict[str, Any] = {"n_ctx": 512, **EXACT}
GREEDY = {"max_tokens": 40, "temperature": 0, "ignore_eos": True}
SEEDED = {**GREEDY, "temperature": 0.9, "seed": 5}
Run = Callable[..., tuple[int, str, str]]


def loaded(**options: Any) -> Duo:
    return Duo(TARGET, DRAFT, _always=True, **{**LOAD, **options})


@pytest.fixture(scope="module")
def right() -> dict[str, tuple[int, ...]]:
    """What is written without any state."""
    with loaded() as d:
        return {name: d.generate(PROMPT, **o).tokens for name, o in (("greedy", GREEDY), ("seeded", SEEDED))}


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
                d.generate("Something else", **GREEDY)
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
    with Duo(TARGET, DRAFT, _always=True, n_batch=16, **LOAD) as d:
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
            with pytest.raises(BadValue, match="this state is damaged; evaluate the text again"):
                d.load_state(damaged)
        for other in (head.tokens[:-3], (*head.tokens, 5), (head.tokens[0], -1, *head.tokens[2:])):
            moved = dataclasses.replace(head, tokens=other)
            with pytest.raises(BadValue, match="this state is damaged"):
                d.load_state(dataclasses.replace(state, target=dataclasses.replace(state.target, head=moved)))
        with pytest.raises(BadValue, match="load_state got str"):
            d.load_state("state")  # type: ignore[arg-type]
        assert d.generate(PROMPT, **GREEDY).tokens == ok
    for options, what in (
        ({"n_ctx": 256}, "context size"),
        ({"type_k": "q8_0"}, "cache type"),
        ({"rope_freq_base": 9e4}, "RoPE"),
    ):
        with loaded(**options) as d, pytest.raises(BadValue, match=f"was made with another {what}"):
            d.load_state(state)
    with Duo(DRAFT, **LOAD) as d, pytest.raises(BadValue, match="was made with another model"):
        d.load_state(state)
    with Duo(TARGET, **LOAD) as d:  # without the draft
        d.load_state(state)
        assert d.generate(PROMPT, **GREEDY).tokens == ok


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
            m.setattr(Session, "engine", property(lambda _: Interrupted()))
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
                with pytest.raises(Busy):
                    call()
            saved: list[Any] = []
            thread = threading.Thread(target=lambda: saved.append(d.save_state()))
            thread.start()
            rest = [c.token for c in s if c.token is not None]
        thread.join()
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


# ---- the prompt cache


@pytest.mark.parametrize("mode", ["plain", "sync", "async"])
def test_a_prompt_cache_spares_the_prompt(mode: Any, tmp_path: Path, right: dict[str, tuple[int, ...]]) -> None:
    file, how = tmp_path / "p.cache", {"mode": mode, "n_draft": 4}
    with loaded() as d:
        n = len(d.tokenize(PROMPT))
        with d.stream(PROMPT, prompt_cache=file, **how, **GREEDY) as s:
            assert tuple(c.token for c in s if c.token is not None) == right["greedy"]
        assert (s.timings["cache_n"], s.warning) == (0, "")
        assert [f"{n} tokens were written to {file}" in note for note in s.cache_notes] == [True]
    written = file.read_bytes()
    with loaded() as d:
        for name, o in (("greedy", GREEDY), ("seeded", SEEDED)):
            d.generate("Something else", **GREEDY)
            with d.stream(PROMPT, prompt_cache=str(file), **how, **o) as s:
                assert tuple(c.token for c in s if c.token is not None) == right[name]
            assert (s.timings["cache_n"], s.warning) == (n - 1, "")
            assert [f"{n} of the prompt's {n} tokens were read from {file}" in x for x in s.cache_notes] == [True]
        r = d.generate(PROMPT, prompt_cache=file, **how, **GREEDY)  # it is all in the models' own caches
        assert r.tokens == right["greedy"]
        assert file.read_bytes() == written


def test_a_prompt_that_goes_on_is_written_anew(tmp_path: Path) -> None:
    file = tmp_path / "p.cache"
    longer = PROMPT + "Then the clock stopped."
    with loaded() as d:
        fresh = d.generate(longer, **GREEDY).tokens
        n, n_longer = len(d.tokenize(PROMPT)), len(d.tokenize(longer))
        d.generate(PROMPT, prompt_cache=file, **GREEDY)
    for ro, cached in ((True, n), (False, n), (False, n_longer - 1)):
        with loaded() as d:
            r = d.generate(longer, prompt_cache=file, prompt_cache_ro=ro, **GREEDY)
            assert (r.tokens, r.warning) == (fresh, "")
            assert abs(r.timings["cache_n"] - cached) <= 2  # the last tokens of a text may join with what follows


def test_prompt_cache_all_keeps_the_text(tmp_path: Path) -> None:
    file = tmp_path / "p.cache"
    with loaded() as d:
        r = d.generate(PROMPT, prompt_cache=file, prompt_cache_all=True, **GREEDY)
        longer = [*d.tokenize(PROMPT), *r.tokens]
        fresh = d.generate([*longer, 5], **GREEDY).tokens
    with loaded() as d:
        r = d.generate([*longer, 5], prompt_cache=file, **GREEDY)
        assert r.tokens == fresh
        assert r.timings["cache_n"] == len(longer) - 1  # the last token was never evaluated


def test_a_bad_file_is_a_warning(tmp_path: Path, right: dict[str, tuple[int, ...]]) -> None:
    file = tmp_path / "p.cache"
    with loaded() as d:
        d.generate(PROMPT, prompt_cache=file, **GREEDY)
        good = file.read_bytes()
        n_head = good.index(b"}]") + 2

        def outcome(data: bytes, *, replaced: bool = True) -> str:
            file.write_bytes(data)
            d.generate("Something else", **GREEDY)
            r = d.generate(PROMPT, prompt_cache=file, **GREEDY)
            assert r.tokens == right["greedy"]
            assert (file.read_bytes() != data) == replaced
            return r.warning

        rng = np.random.default_rng(1)
        places = [
            12,
            15,
            19,
            20,
            30,
            n_head - 3,
            n_head + 5,
            n_head + 32,
            len(good) - 1,
            *rng.integers(20, len(good), 8),
        ]
        for i in map(int, places):
            bad = bytearray(good)
            bad[i] ^= 1 << int(rng.integers(8))
            assert f"the prompt cache {file} is damaged; the text" in outcome(bytes(bad)), i
        for n in (13, 21, n_head - 1, n_head + 10, n_head + 40, len(good) // 2, len(good) - 1):
            assert " is truncated;" in (why := outcome(good[:n])) or " is damaged;" in why, n
        assert " is truncated;" in outcome(good + b"x")
        for foreign in (b"Dear diary", TARGET.read_bytes()[:5000], good[:5]):
            assert "is not a prompt cache of duo; it stays as it is" in outcome(foreign, replaced=False)
        assert outcome(b"") == ""  # as mktemp makes it
    with Duo(DRAFT, **LOAD) as d:
        file.write_bytes(good)
        r = d.generate(PROMPT, prompt_cache=file, **GREEDY)
        assert "was made with another model" in r.warning
        assert file.read_bytes() != good
        assert d.generate("x", prompt_cache=tmp_path, **GREEDY).warning.startswith(
            f"the prompt cache {tmp_path} is not a file"
        )
        gone = tmp_path / "none" / "p.cache"
        assert "could not be written" in d.generate("x", prompt_cache=gone, **GREEDY).warning


def test_cancelled_texts_and_those_of_an_event_loop(tmp_path: Path, right: dict[str, tuple[int, ...]]) -> None:
    file = tmp_path / "p.cache"
    with loaded() as d:
        n = len(d.tokenize(PROMPT))
        with d.stream(PROMPT, prompt_cache=file, **GREEDY) as s:
            next(s)
        assert s.finish_reason == "cancelled"
        assert file.exists()

    async def texts(d: Duo) -> None:
        r = await d.agenerate(PROMPT, prompt_cache=file, **GREEDY)
        assert (r.tokens, r.timings["cache_n"]) == (right["greedy"], n - 1)
        file.unlink()
        tokens = [c.token async for c in d.astream(PROMPT, prompt_cache=file, **SEEDED) if c.token is not None]
        assert tuple(tokens) == right["seeded"]
        assert file.exists()

    with loaded() as d:
        asyncio.run(texts(d))


def test_a_recurrent_model_keeps_its_state_of_the_prompt(tmp_path: Path) -> None:
    mamba, file = tiny_mamba(DRAFT, tmp_path / "mamba.gguf"), tmp_path / "p.cache"
    with Duo(mamba, n_ctx=512) as d:
        right = d.generate(PROMPT, **GREEDY).tokens
        n = len(d.tokenize(PROMPT))
    for cached in (n - 1, n - 1):
        with Duo(mamba, n_ctx=512) as d:
            r = d.generate(PROMPT, prompt_cache=file, **GREEDY)
            assert (r.tokens, r.warning, r.timings["cache_n"]) == (right, "", cached)
            assert d.generate(PROMPT, **GREEDY).tokens == right


def test_a_damaged_file_of_a_recurrent_model_is_replaced(tmp_path: Path) -> None:
    mamba, file = tiny_mamba(DRAFT, tmp_path / "mamba.gguf"), tmp_path / "p.cache"
    with Duo(mamba, n_ctx=512) as d:
        right = d.generate(PROMPT, prompt_cache=file, **GREEDY).tokens
        good = file.read_bytes()
        file.write_bytes(good[:-1])
        r = d.generate(PROMPT, prompt_cache=file, **GREEDY)
        assert (r.tokens, "is truncated" in r.warning, file.read_bytes()) == (right, True, good)


def test_a_file_of_another_model_is_never_trusted(tmp_path: Path) -> None:
    """Both have the same vocabulary, and the second one's own cache holds the prompt already."""
    file = tmp_path / "p.cache"
    with loaded() as d:
        d.generate(PROMPT, prompt_cache=file, **GREEDY)
    of_target = file.read_bytes()
    with Duo(DRAFT, **LOAD) as d:
        d.generate(PROMPT, **GREEDY)
        assert "was made with another model" in d.generate(PROMPT, prompt_cache=file, **GREEDY).warning
    assert file.read_bytes() != of_target


def test_a_model_with_a_sliding_window_can_go_back_in_a_restored_text(tmp_path: Path) -> None:
    gemma = tiny_gemma3(DRAFT, tmp_path / "gemma3.gguf", window=16)
    with Duo(gemma, n_ctx=512) as d:
        ids = d.tokenize(PROMPT)
        prompts = [ids, ids[:80], [*ids[:90], 7, 8], ids]
        right = []
        for p in prompts:
            d.generate([5], **GREEDY)
            right.append(d.generate(p, **GREEDY).tokens)
        d.generate(ids, **GREEDY)
        state = d.save_state()
    with Duo(gemma, n_ctx=512) as d:
        for p, tokens in zip(prompts, right, strict=True):
            d.load_state(state)
            r = d.generate(p, **GREEDY)
            assert (r.tokens, r.timings["cache_n"]) == (tokens, min(len(p) - 1, 90) if p != ids else len(ids) - 1)
    assert len(set(right)) == 3


def test_the_program_tells_what_it_read_and_wrote(tmp_path: Path) -> None:
    file = tmp_path / "p.cache"
    args = ["-p", PROMPT, "-n", "8", "--temp", "0", "-c", "512", "--prompt-cache", file, "--no-display-prompt"]
    texts = []
    for more, said in (
        (["--prompt-cache-ro"], ""),
        ([], "tokens were written to"),
        (["--prompt-cache-ro"], "tokens were read from"),
        (["--prompt-cache-all"], "tokens were read from"),
    ):
        p = start_duo(*args, *more)
        out, err = p.communicate(timeout=HANG_S)
        assert p.returncode == 0, err
        texts.append(out)
        assert ("prompt cache: " in err.decode()) == bool(said)
        assert said in err.decode()
    assert len(set(texts)) == 1
    file.write_bytes(file.read_bytes()[:-1])
    p = start_duo(*args)
    out, err = p.communicate(timeout=HANG_S)
    assert (p.returncode, out) == (0, texts[0])
    assert err.decode().count(f"the prompt cache {file} is truncated; the text does not depend on it") == 1


def test_a_target_elsewhere_has_its_cache_there(tmp_path: Path) -> None:
    with host("verify", "-m", TARGET, "-c", "256", *KERNELS) as h, Duo(None, DRAFT, verify_host=h.address) as d:
        with pytest.raises(BadValue, match=r"prompt_cache \(--prompt-cache\) needs the target in this process"):
            d.generate("Once", prompt_cache=tmp_path / "x")
        for call in (d.save_state, lambda: d.load_state(None)):  # type: ignore[arg-type]
            with pytest.raises(BadValue, match="it is on another machine, " + h.address):
                call()
        with pytest.raises(BadValue, match="leave out echo or logprobs"):
            d.create_completion("Once upon", echo=True, logprobs=1)
        assert d.generate("Once", max_tokens=3, temperature=0).tokens
        with pytest.raises(BadValue):
            prepare(d.local_model, None, "x", {"prompt_cache": "file"})
