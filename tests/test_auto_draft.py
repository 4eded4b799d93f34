"""`Duo(model, draft="auto")`: what the commands use without a draft. And the cache of a head, if it is quantised."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import EXACT
from mtp_models import foreseeing

import duo
from duo import BadValueError, Duo
from duo.models.demo import demo_pair
from duo.models.pairs import find

TARGET, DRAFT = demo_pair()
HEAD = find("demo-eagle3").folder / "duo-demo-eagle3-q8_0.gguf"
pytestmark = pytest.mark.usefixtures("empty_lists")
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return Path(shutil.copy(TARGET, tmp_path / "Big-7B.gguf"))


def test_a_file_beside_the_target_drafts(target: Path) -> None:
    beside = shutil.copy(DRAFT, target.with_name("draft-small.gguf"))
    with Duo(target, "auto", n_ctx=256) as d:
        assert d.draft is not None and d.draft.path == str(beside)
        with pickle.loads(pickle.dumps(d)) as copy:
            assert copy.draft is not None
    with Duo(target, n_ctx=256) as d:
        assert d.draft is None, "nothing is chosen unasked"
    for none in ({"mode": "plain"}, {"n_draft": "none"}, {"n_draft": 0}):
        with Duo(target, "auto", n_ctx=256, **none) as d:
            assert d.draft is None and "spec_type" not in d.defaults, none


def test_the_targets_own_layers_draft(tmp_path: Path) -> None:
    with Duo(foreseeing("hy_v3", DRAFT, tmp_path / "whole.gguf"), draft="auto", n_ctx=256) as d:
        assert d.draft is not None and d.draft.head == "mtp"


def test_ngrams_where_there_is_nothing_else(target: Path) -> None:
    with Duo(target, "auto", n_ctx=256, **EXACT) as d:
        text = "one two three one two three one two"
        greedy = {"max_tokens": 24, "temperature": 0.0, "ignore_eos": True}
        r = d.generate(text, **greedy)
        assert d.draft is None and r.timings["draft_n"] > 0
        assert "draft_n" not in d.generate(text, **greedy, accept="typical").timings, "they would change the text"
        assert "draft_n" in d.generate(text, **greedy, accept="typical", spec_type="ngram-map-k").timings
    with Duo(target, n_ctx=256, **EXACT) as d:
        assert d.generate(text, **greedy).tokens == r.tokens


def test_the_short_call_takes_it(target: Path) -> None:
    assert duo.generate("once", model=target, draft="auto", max_tokens=2, n_ctx=64).text


@pytest.mark.parametrize("more", [{"spec_type": "none"}, {"draft_host": "127.0.0.1:1"}])
def test_one_chooses_what_guesses(more: dict[str, str], target: Path) -> None:
    with pytest.raises(
        BadValueError, match=f'draft="auto" chooses what guesses, and so does {next(iter(more))}; leave'
    ):
        Duo(target, "auto", **more)
    with pytest.raises(BadValueError, match='draft="auto" looks for what the target brings along, and no target'):
        Duo(draft="auto")


@pytest.mark.parametrize(("draft", "warned"), [(HEAD, True), (DRAFT, False)])
def test_a_quantised_cache_of_a_head_is_warned_of(draft: Path, warned: bool, run: Run) -> None:
    line = ("-m", TARGET, "-md", draft, "-p", "once", "-n", "2", "-c", "256", "-fa", "on")
    code, _, err = run(*line, "-ctkd", "q8_0")
    said = (
        "a quantised cache of a draft head can cost nearly all right guesses (from 99 to 2%, llama.cpp #25725); leave"
    )
    assert code == 0 and (f"duo: {said} out -ctkd q8_0, and it is f16\n" in err) == warned
    assert said not in run(*line, "-ctk", "q8_0")[2]
    assert (said in run("check", TARGET, draft, "-ctvd", "q4_0", "-ctkd", "q8_0")[1]) == warned
