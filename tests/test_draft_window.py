"""A draft that reads the first tokens of a prompt and its last ones (--draft-window): the text is the target's own."""

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from conftest import EXACT, HELD
from hosts import host, remote
from prompts import LONG
from sizes import mostly_daily

from duo import BadValueError, Duo, _core
from duo.generation.errand import finish
from duo.gguf_tools.switched_duo import SwitchedDuo
from duo.models.demo import demo_pair

N_SINK = 16  # csrc/text/draft_window.h
N_TOKENS = 40
WINDOWS = (1, 16, 100, 4096, "all", 0, "auto")
SAMPLINGS: dict[str, dict[str, Any]] = {"greedy": {"temperature": 0}, "seeded": {"temperature": 0.8, "seed": 5}}
PROMPTS = [LONG[0], LONG[4]]


@pytest.fixture(scope="module")
def eager() -> Iterator[Duo]:
    """Speculates whether it pays or not."""
    with SwitchedDuo(n_ctx=1024, **HELD, **EXACT) as d:
        yield d


@pytest.fixture(scope="module")
def right() -> dict[tuple[str, str], tuple[int, ...]]:
    """What the target writes alone."""
    with Duo(demo_pair()[0], n_ctx=1024, **EXACT) as d:
        return {
            (p, s): d.generate(p, max_tokens=N_TOKENS, mode="plain", **o).tokens
            for p in [*PROMPTS, LONG[0] + "And then"]
            for s, o in SAMPLINGS.items()
        }


def read_of(d: Duo) -> list[int]:
    """The tokens that the draft's cache holds of the last text."""
    return finish(d.session, _core.Errand("look")).draft_tokens


# What the draft reads depends on the window, and not on whether it runs ahead; in async it reads on while a pass runs.
@pytest.mark.parametrize(
    ("window", "mode"),
    mostly_daily(
        product(WINDOWS, ["sync", "async"]),
        [(1, "sync"), ("auto", "sync"), (100, "async"), ("auto", "async")],
    ),
)
def test_the_text_is_plains(
    eager: Duo, right: dict[tuple[str, str], tuple[int, ...]], window: int | str, mode: Any
) -> None:
    n_accepted = 0
    for prompt, (name, o) in zip(PROMPTS, SAMPLINGS.items(), strict=True):
        r = eager.generate(prompt, max_tokens=N_TOKENS, mode=mode, n_draft=4, draft_window=window, **o)
        assert (r.tokens, r.warning) == (right[prompt, name], ""), f"{prompt[:20]!r}, {name}"
        n_accepted += r.timings["draft_n_accepted"]
    assert n_accepted > 0


def test_the_draft_reads_the_beginning_and_the_end(eager: Duo) -> None:
    for window in (16, 100):
        eager.generate("Something else", max_tokens=2, temperature=0)  # nothing of the prompt stays cached
        r = eager.generate(LONG[1], max_tokens=8, temperature=0, mode="sync", n_draft=2, draft_window=window)
        prompt = eager.tokenize(LONG[1])
        read = read_of(eager)
        assert read[:N_SINK] == prompt[:N_SINK]
        assert read[N_SINK : N_SINK + window] == prompt[-window:]
        rest = read[N_SINK + window :]
        assert rest == list(r.tokens[: len(rest)])


def test_a_text_that_goes_on_is_not_read_again(eager: Duo, right: dict[tuple[str, str], tuple[int, ...]]) -> None:
    how: dict[str, Any] = {"max_tokens": N_TOKENS, "temperature": 0, "mode": "sync", "n_draft": 4, "draft_window": 64}
    eager.generate("Something else", max_tokens=2, temperature=0)
    eager.generate(LONG[0], **how)
    longer = LONG[0] + "And then"
    assert eager.generate(longer, **how).tokens == right[longer, "greedy"]
    n_prompt, n_longer = len(eager.tokenize(LONG[0])), len(eager.tokenize(longer))
    read = read_of(eager)
    assert read[N_SINK : N_SINK + n_longer - n_prompt + 64] == eager.tokenize(longer)[n_prompt - 64 :]


@pytest.mark.daily
@pytest.mark.full
def test_several_texts_at_once(right: dict[tuple[str, str], tuple[int, ...]]) -> None:
    with SwitchedDuo(n_ctx=4096, n_parallel=4, always=True, **EXACT) as d:
        for window, mode, name in ((8, "async", "greedy"), (64, "sync", "seeded"), ("auto", "async", "seeded")):
            how: dict[str, Any] = {"max_tokens": N_TOKENS, "mode": mode, "n_draft": 4, "draft_window": window}
            found = list(d.generate_many(PROMPTS * 2, **how, **SAMPLINGS[name]))
            assert [r.tokens for r in found] == [right[p, name] for p in PROMPTS * 2], f"{window}, {mode}"


@pytest.mark.daily
@pytest.mark.remote
def test_a_draft_host_leaves_out_the_middle(right: dict[tuple[str, str], tuple[int, ...]]) -> None:
    pytest.importorskip("grpc")
    with host("draft", "-td", "1") as h, remote("draft", h, **HELD) as d:
        for window, mode in ((16, "sync"), (100, "async"), ("all", "async"), ("auto", "sync")):
            n_accepted = 0
            for name, o in SAMPLINGS.items():
                how: dict[str, Any] = {"max_tokens": N_TOKENS, "mode": mode, "n_draft": 4, "draft_window": window}
                r = d.generate(LONG[0], **how, **o)
                assert (r.tokens, r.warning) == (right[LONG[0], name], "")
                n_accepted += r.timings["draft_n_accepted"]
            assert n_accepted > 0


def test_a_saved_prompt_is_the_targets(tmp_path: Path, right: dict[tuple[str, str], tuple[int, ...]]) -> None:
    file = tmp_path / "p.cache"
    how: dict[str, Any] = {
        "max_tokens": N_TOKENS, "temperature": 0, "mode": "sync", "n_draft": 4, "draft_window": 32,
        "prompt_cache": file,
    }  # fmt: skip
    for cached in (False, True):
        with SwitchedDuo(n_ctx=1024, always=True, **EXACT) as d:
            r = d.generate(LONG[0], **how)
            assert (r.tokens, r.warning) == (right[LONG[0], "greedy"], "")
            assert (r.timings["cache_n"] > 0) == cached
            assert r.timings["draft_n_accepted"] > 0


@pytest.mark.parametrize("window", [-1, 2**20 + 1, "many", 1.5, None])
def test_other_windows_are_refused(duo_pair: Duo, window: Any) -> None:
    with pytest.raises(BadValueError, match="draft_window"):
        duo_pair.generate("x", max_tokens=2, draft_window=window)
