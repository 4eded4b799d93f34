"""From tokens to text: whole characters, stop strings, full contexts, long prompts, what is kept between calls."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from gguf_files import rewrite
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sizes import mostly_daily, size

from duo import Duo, DuoError, Result
from duo.gguf_tools.switched_duo import SwitchedDuo
from duo.models.demo import demo_pair

PROMPT = "Once upon a time"
MODES = ("plain", "sync", "async")


def only(d: Duo, *wanted: bytes) -> dict[str, Any]:
    """Options that leave these tokens, all equally probable: the text becomes random in their letters."""
    ids = [t for t in range(d.target.n_vocab) if d.target.piece(t) in wanted]
    assert len(ids) == len(wanted)
    # At such a bias a float has no room for the model's own opinion.
    return {"logit_bias": dict.fromkeys(ids, 1e9), "temperature": 1, "top_k": len(ids), "top_p": 1, "min_p": 0}


@pytest.fixture(scope="module")
def letters(strict_pair: Duo) -> dict[str, Any]:
    """Texts in the letters a and b."""
    return only(strict_pair, b"a", b"b")


@pytest.fixture(scope="module")
def letters_alone(strict_pair: Duo, letters: dict[str, Any]) -> Callable[[int], Result]:
    """80 of them by seed."""
    return cache(lambda seed: strict_pair.generate(PROMPT, seed=seed, max_tokens=80, mode="plain", **letters))


@pytest.mark.full
@pytest.mark.parametrize("mode", mostly_daily(MODES, ["plain", "async"]))
def test_characters_that_span_tokens_come_out_whole(strict_pair: Duo, mode: str) -> None:
    found = set()
    for letter, seed, n in (("é", 9, 60), ("😀", 12, 60), ("😀", 13, 120)):  # these seeds bring the whole letter early
        options = only(strict_pair, b"a", *(bytes([b]) for b in letter.encode()))
        with strict_pair.stream(PROMPT, seed=seed, max_tokens=n, mode=mode, n_draft=4, **options) as s:
            chunks = list(s)
        # Invalid parts become U+FFFD, one for each, exactly as Python's own decoder does it.
        whole = b"".join(strict_pair.target.piece(t) for t in s.result.tokens).decode("utf-8", "replace")
        assert "".join(c.text for c in chunks) == whole == s.result.text
        found |= set(whole)
    assert {"a", "é", "😀", "\ufffd"} <= found


def test_emoji_in_a_prompt_and_in_a_stop_string(strict_pair: Duo) -> None:
    options = only(strict_pair, *(bytes([b]) for b in "😀".encode())) | {"max_tokens": 100}
    seed = next(s for s in range(50) if "😀" in strict_pair.generate("😀", seed=s, **options).text)
    whole = strict_pair.generate("😀", seed=seed, **options)
    r = strict_pair.generate("😀", seed=seed, stop="😀", **options)
    assert r.finish_reason == "stop"
    assert r.text == whole.text.partition("😀")[0]


@pytest.mark.random
@settings(max_examples=size(15, 500), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    stops=st.lists(st.text("ab", min_size=3, max_size=9), min_size=1, max_size=4),
    seed=st.integers(0, 9),
    mode=st.sampled_from(MODES),
)
def test_text_ends_before_the_first_stop_string(
    strict_pair: Duo,
    letters: dict[str, Any],
    letters_alone: Callable[[int], Result],
    stops: list[str],
    seed: int,
    mode: str,
) -> None:
    whole = letters_alone(seed)
    assert len(whole.text) == 80
    with strict_pair.stream(PROMPT, seed=seed, max_tokens=80, mode=mode, stop=stops, n_draft=8, **letters) as s:
        so_far = ""
        for chunk in s:
            so_far += chunk.text
            assert not any(stop in so_far for stop in stops)
    # The stop string that is complete first wins, also over one that began before it.
    end = min((at + len(stop) for stop in stops if (at := whole.text.find(stop)) >= 0), default=None)
    first = min((at for stop in stops if (at := whole.text[:end].find(stop)) >= 0), default=None)
    assert s.result.text == so_far == whole.text[:first]
    assert s.result.finish_reason == ("length" if end is None else "stop")
    assert s.result.tokens == whole.tokens[:end]  # not a token more than it takes to know
    assert sum(s.result.from_draft) <= len(s.result.tokens)
    if mode != "plain":
        assert s.timings["draft_n_accepted"] == sum(s.result.from_draft)


def test_a_stop_string_may_be_given_alone_and_cut_a_token(strict_pair: Duo) -> None:
    whole = strict_pair.generate(PROMPT, temperature=0, max_tokens=60).text
    for stop in (whole[20:23], whole[5], whole[10:40]):
        r = strict_pair.generate(PROMPT, temperature=0, max_tokens=60, stop=stop)
        assert r.text == whole.partition(stop)[0]
        assert r.finish_reason == "stop"
    assert strict_pair.generate(PROMPT, temperature=0, max_tokens=60, stop=["never", "ever there"]).text == whole


@pytest.mark.parametrize("mode", MODES)
def test_the_model_may_end_and_may_be_kept_from_it(duo_pair: Duo, mode: str) -> None:
    ends = [t for t in range(4096) if duo_pair.target.is_end(t)]
    assert ends
    r = duo_pair.generate(PROMPT, logit_bias={ends[0]: 1e6}, mode=mode)
    assert (r.text, r.tokens, r.finish_reason) == ("", (ends[0],), "stop")
    assert r.timings["predicted_n"] == 1
    r = duo_pair.generate(PROMPT, logit_bias={ends[0]: 1e6}, ignore_eos=True, max_tokens=20, mode=mode)
    assert r.finish_reason == "length"
    assert not set(ends) & set(r.tokens)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("n_ctx", mostly_daily([8, 33, 64, 200], [8, 64]))
def test_a_full_context_ends_the_text(mode: str, n_ctx: int) -> None:
    with Duo(n_ctx=n_ctx, strict=True) as d:
        for n_draft in (3, 16, "auto"):
            r = d.generate(PROMPT, ignore_eos=True, mode=mode, n_draft=n_draft, temperature=0)
            assert r.finish_reason == "length"
            assert r.prompt_tokens + len(r.tokens) == n_ctx
        r = d.generate(d.tokenize("a " * n_ctx)[: n_ctx - 1], ignore_eos=True, mode=mode)
        assert (len(r.tokens), r.finish_reason) == (1, "length")


def test_a_prompt_that_does_not_fit_is_refused_before_any_work() -> None:
    with Duo(n_ctx=32, trace="/dev/null") as d:
        for n in (32, 33, 1000):
            with pytest.raises(DuoError, match=f"the prompt has {n} tokens and the context holds 32"):
                d.generate([300] * n)
        assert d.engine.take_trace() == []
        assert d.timings == {}
        assert len(d.generate([300] * 31, ignore_eos=True).tokens) == 1


@pytest.mark.parametrize("n_batch", mostly_daily([1, 2, 3, 31, 64], [1, 31]))
def test_a_prompt_longer_than_the_batch_gives_the_same_text(n_batch: int) -> None:
    prompt = "Once upon a time there was a tin soldier who had one leg. " * 14
    options: dict[str, Any] = {"temperature": 0, "max_tokens": 20}
    with Duo(n_ctx=512, strict=True) as d:
        whole = d.generate(prompt, **options)
    assert 200 < whole.prompt_tokens < 460
    with Duo(n_ctx=512, strict=True, n_batch=n_batch) as d:
        for mode in MODES:
            assert d.generate(prompt, mode=mode, **options).tokens == whole.tokens, mode


@pytest.mark.parametrize("mode", mostly_daily(MODES, ["async"]))
def test_a_shared_prefix_is_evaluated_once_and_changes_no_text(strict_pair: Duo, target_alone: Duo, mode: str) -> None:
    options: dict[str, Any] = {"temperature": 0, "max_tokens": 30, "mode": mode}
    story = "It was a dark and stormy night, and the rain fell in torrents on the little town"
    first = strict_pair.generate(story, **options)
    ids = strict_pair.tokenize(story)
    assert strict_pair.generate(story, **options).timings["cache_n"] == len(ids) - 1
    follow_ups = [
        [*ids, *first.tokens],  # a chat goes on
        [*ids, *first.tokens[:10], 300, 301, 302],  # and is edited
        ids[:9],
        [*ids[:9], 400, 401],
        [700, 701, 702, 703],
        ids,
    ]
    for prompt in follow_ups:
        r = strict_pair.generate(prompt, **options)
        fresh = target_alone.generate([0, 999], max_tokens=1)  # something else, so that nothing is shared
        fresh = target_alone.generate(prompt, **options)
        assert fresh.timings["cache_n"] <= 1
        assert r.tokens == fresh.tokens
        assert r.timings["cache_n"] + r.timings["prompt_n"] == len(prompt)
    r = strict_pair.generate([*ids, *strict_pair.generate(story, **options).tokens], **options)
    assert r.timings["cache_n"] >= len(ids) + 25


def poisoned(path: Path, to: Path, token: int) -> Path:
    """The model with NaN as the embedding of one token: all is well until it occurs."""

    def weights(name: str, data: Any) -> Any:
        if name == "token_embd.weight":
            data[token, 0:2] = (0x00, 0x7E)  # the scale of a Q8_0 block, a half float
        return data

    return rewrite(path, to, weights=weights)


@pytest.mark.full
@pytest.mark.random
@pytest.mark.parametrize("kernels", mostly_daily(["auto", "stock"], ["auto"]))
def test_a_target_that_fails_halfway_reports_it_and_returns_the_text_so_far(tmp_path: Path, kernels: str) -> None:
    options: dict[str, Any] = {"n_ctx": 256, "strict": True, "cpu_kernels": kernels}
    with Duo(demo_pair()[0], **options) as d:
        whole = d.generate(PROMPT, temperature=0, max_tokens=40)
        known = d.tokenize(PROMPT)
    new = [i for i in range(8, 40) if whole.tokens.index(whole.tokens[i]) == i and whole.tokens[i] not in known]
    for at in new[:: size(9, 3)]:
        bad = poisoned(demo_pair()[0], tmp_path / "bad.gguf", whole.tokens[at])
        # The draft guesses the bad token before the target writes it. That must not end the text earlier.
        with SwitchedDuo(bad, demo_pair()[1], always=True, **options) as d:
            for mode in MODES:
                with pytest.raises(DuoError, match="NaN instead of numbers") as e:
                    d.generate(PROMPT, temperature=0, max_tokens=40, mode=mode)
                assert e.value.result is not None
                assert e.value.result.tokens == whole.tokens[: at + 1]
                assert whole.text.startswith(e.value.result.text)
                assert e.value.result.finish_reason == "error"
                assert str(bad) in str(e.value)
                r = d.generate(PROMPT, temperature=0, max_tokens=at, mode=mode)  # and it goes on working
                assert r.tokens == whole.tokens[:at]


def test_the_text_continues_without_a_draft_that_fails_halfway(tmp_path: Path, target_alone: Duo) -> None:
    whole = target_alone.generate(PROMPT, temperature=0, max_tokens=80)
    at = next(i for i in range(14, 40) if whole.tokens.index(whole.tokens[i]) == i)
    bad = poisoned(demo_pair()[1], tmp_path / "bad.gguf", whole.tokens[at])
    with SwitchedDuo(demo_pair()[0], bad, n_ctx=256, strict=True, always=True) as d:
        for mode in ("sync", "async", "async"):
            r = d.generate(PROMPT, temperature=0, max_tokens=80, mode=mode, n_draft=2)
            assert r.tokens == whole.tokens
            assert "NaN instead of numbers" in r.warning
            assert not any(r.from_draft[at + 8 :])
            # The next text has its draft again. In turns: a draft that works ahead may try the bad token sooner.
            assert d.generate(PROMPT, temperature=0, max_tokens=at - 10, mode="sync", n_draft=2).warning == ""
