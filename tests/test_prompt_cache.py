"""`prompt_cache`: the state of a prompt in a file that a later run reads."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import HANG_S, start_duo
from gguf_files import tiny_gemma3, tiny_mamba
from hosts import KERNELS, host
from kept_text import DRAFT, GREEDY, LOAD, PROMPT, SEEDED, TARGET, loaded, without_state
from sizes import mostly_daily, size

from duo import BadValueError, Duo
from duo.generation.job import check_options

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def right() -> dict[str, tuple[int, ...]]:
    return without_state()


@pytest.mark.parametrize("mode", mostly_daily(["plain", "sync", "async"], ["async"]))
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


@pytest.mark.random
def test_a_bad_file_is_a_warning(tmp_path: Path, right: dict[str, tuple[int, ...]]) -> None:
    file = tmp_path / "p.cache"
    with loaded() as d:
        d.generate(PROMPT, prompt_cache=file, **GREEDY)
        good = file.read_bytes()
        n_head = good.index(b"}]") + 2

        def outcome(data: bytes, *, replaced: bool = True) -> str:
            file.write_bytes(data)
            d.generate("Something else", **GREEDY | {"max_tokens": 1})
            r = d.generate(PROMPT, prompt_cache=file, **GREEDY | {"max_tokens": 8})
            assert r.tokens == right["greedy"][:8]
            assert (file.read_bytes() != data) == replaced
            return r.warning

        rng = np.random.default_rng(1)
        places = [12, 19, 20, n_head - 3, n_head + 5, len(good) - 1, *rng.integers(20, len(good), size(1, 100))]
        for i in map(int, places):
            bad = bytearray(good)
            bad[i] ^= 1 << int(rng.integers(8))
            assert f"the prompt cache {file} is damaged; the text" in outcome(bytes(bad)), i
        for n in (13, n_head - 1, n_head + 40, len(good) - 1):
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


@pytest.mark.daily
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
        with pytest.raises(BadValueError, match=r"prompt_cache \(--prompt-cache\) needs the target in this process"):
            d.generate("Once", prompt_cache=tmp_path / "x")
        with pytest.raises(BadValueError, match=r"context_shift .* needs the target in this process"):
            d.generate("Once", context_shift=True)
        for call in (d.save_state, lambda: d.load_state(None)):  # type: ignore[arg-type]
            with pytest.raises(BadValueError, match="it is on another machine, " + h.address):
                call()
        with pytest.raises(BadValueError, match="leave out echo or logprobs"):
            d.create_completion("Once upon", echo=True, logprobs=1)
        assert d.generate("Once", max_tokens=3, temperature=0).tokens
        with pytest.raises(BadValueError):
            check_options({"prompt_cache": "file"}, "generate", d.local_model, None)
