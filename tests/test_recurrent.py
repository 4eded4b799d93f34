"""Models that keep a recurrent state: what was decoded cannot be taken back, so nothing may be guessed."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gguf_files import tiny_mamba
from loads import load

from duo import Duo
from duo.models.demo import demo_pair

TARGET, DRAFT = demo_pair()
NGRAMS = ("ngram-simple", "ngram-map-k", "ngram-map-k4v")
WHY = "the target keeps a recurrent state that cannot be rolled back after a wrong guess, so n-grams cannot guess"
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def mamba(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_mamba(DRAFT, tmp_path_factory.mktemp("recurrent") / "mamba.gguf")


def test_recurrent_models_cannot_be_in_a_pair(mamba: Path) -> None:
    for paths in ([TARGET, mamba], [mamba, DRAFT], [mamba, mamba]):
        outcome = load(*paths)
        assert outcome.what == "refused"
        assert f"{mamba} keeps a recurrent state that cannot be rolled back" in outcome.text


def test_a_recurrent_model_keeps_texts_apart(mamba: Path) -> None:
    story = "It was a dark and stormy night, and the rain fell in torrents on the little town"
    options: dict[str, Any] = {"temperature": 0, "max_tokens": 16}
    with Duo(mamba, n_ctx=256, n_batch=8) as d:
        ids = d.tokenize(story)
        first = d.generate(ids, **options).tokens
        prompts = [ids, [*ids, *first], [*ids, *first[:5], 7], ids[:9], [*ids[:9], 400], ids, [5], ids]
        right = []
        for p in prompts:
            with Duo(mamba, n_ctx=256, n_batch=8) as fresh:
                right.append(fresh.generate(p, **options).tokens)
        assert len(set(right)) >= 6
        assert [d.generate(p, **options).tokens for p in prompts] == right
        for p, text in zip(prompts, right, strict=True):
            with d.stream(ids, max_tokens=-1, ignore_eos=True) as s:  # cut off wherever it is
                next(s)
            assert d.generate(p, **options).tokens == text
            d.stream(p).close()
            assert d.generate(p, **options).tokens == text


@pytest.mark.parametrize("spec_type", [[n] for n in NGRAMS] + [["draft-simple", "ngram-map-k"]])
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_ngrams_give_way_to_plain_decoding(mamba: Path, spec_type: list[str], mode: Any) -> None:
    """A text that repeats itself at once: guesses would be there from the first pass on, and some of them wrong."""
    options: dict[str, Any] = {"temperature": 0, "max_tokens": 60, "mode": mode}
    with Duo(mamba, n_ctx=256, _always=True) as d:
        prompt = d.tokenize("the cat sat on the mat, the cat sat on the hat, the cat sat on the ") * 2
        plain = d.generate(prompt, **options)
        assert plain.warning == ""
        text = d.generate(prompt, spec_type=spec_type, ngram_size_n=2, ngram_size_m=4, **options)
        assert text.tokens == plain.tokens
        assert text.finish_reason == plain.finish_reason == "length"
        assert text.warning == f"{WHY}; the text was decoded plainly"
        assert "draft_n" not in text.timings
        with d.stream(prompt, spec_type=spec_type, **options) as s:
            assert s.warning.startswith(WHY)  # before the first token
            assert tuple(c.token for c in s if c.token is not None) == plain.tokens
        found = asyncio.run(d.agenerate(prompt, spec_type=spec_type, **options))
        assert (found.tokens, found.warning) == (text.tokens, text.warning)
        assert d.generate(prompt, **{**options, "mode": "plain", "spec_type": spec_type}).warning == ""  # nobody asked


def test_the_first_line_says_so(mamba: Path, run: Run) -> None:
    code, out, err = run("-m", mamba, "-p", "one two one two one two one", "-n", 8, "--json", "--temp", 0,
                         "--spec-type", "ngram-map-k", "-c", 128)  # fmt: skip
    assert code == 0, err
    assert err.splitlines()[0].endswith(f"; plain decoding: {WHY}")
    assert err.count("rolled back") == 1
    assert json.loads(out.splitlines()[-1])["warning"].startswith(WHY)


def test_other_targets_keep_their_ngrams(run: Run) -> None:
    with Duo(TARGET, n_ctx=256, _always=True) as d:
        text = d.generate("one two one two one two one", max_tokens=20, spec_type=["ngram-map-k"], ngram_size_n=2)
    assert text.warning == ""
    assert text.timings["draft_ngram_n"] > 0
