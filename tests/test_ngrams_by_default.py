"""`duo -m X` alone, where X brings no draft: n-grams guess what repeats itself, if they can change no text."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import EXACT
from hosts import KERNELS
from sizes import mostly_daily
from tiny_models import tiny

from duo import Duo
from duo.models.demo import demo_pair
from duo.server.request_options import text_options
from duo.server.schemas import TextFields

TARGET, DRAFT = demo_pair()
PASSAGE = "The little tin soldier stood in the window and looked at the snow. "
LINE = ("-p", 4 * PASSAGE, "-n", "24", "--temp", "0", "--ignore-eos", "-c", "512", "--json")
GUESSED = "guesses from n-grams (ngram-map-k)"
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target in a folder of its own."""
    return Path(shutil.copy(TARGET, tmp_path_factory.mktemp("model") / "target.gguf"))


def told(out: str) -> tuple[str, dict[str, float]]:
    """The text, and the figures."""
    found = json.loads(out)
    return found["text"], found["timings"]


def test_what_repeats_itself_is_guessed_and_the_text_is_the_same(target: Path, run: Run) -> None:
    code, out, err = run("-m", target, *LINE, *KERNELS)
    assert code == 0 and GUESSED in err.splitlines()[0]
    text, figures = told(out)
    assert figures["draft_ngram_n"] >= figures["draft_ngram_n_accepted"] > 0
    for said in (
        ("-md", "none"),
        ("--spec-type", "none"),
        ("--mode", "plain"),
        ("--draft", "none"),
        ("--draft-max", "0"),
    ):
        code, out, err = run("-m", target, *LINE, *KERNELS, *said)
        assert code == 0 and "plain decoding" in err.splitlines()[0], said
        assert told(out)[0] == text and "draft_ngram_n" not in told(out)[1], said


@pytest.mark.parametrize(
    ("options", "guessed"),
    [
        (("--cpu-kernels", "stock"), False),  # a wider pass may round differently
        (("--cpu-kernels", "stock", "--strict"), True),
        ((*KERNELS, "-fa", "off"), False),  # stock attention, whose order of adding depends on the width
        ((*KERNELS, "--accept", "noise"), True),
        ((*KERNELS, "--accept", "rejection"), False),  # the text would be another one
    ],
)
def test_only_where_it_changes_no_text(options: tuple[str, ...], guessed: bool, target: Path, run: Run) -> None:
    code, _, err = run("-m", target, *LINE, *options)
    assert code == 0 and (GUESSED in err.splitlines()[0]) is guessed


SAID: list[tuple[tuple[str, ...], bool]] = [
    ((), True),
    (("--draft", "auto", "--draft-min", "0", "--draft-tree", "auto"), True),  # the defaults
    (("--draft-p-min", "0.1"), True),
    (("--spec-type", "draft-simple"), False),
    (("--draft", "4"), False),
    (("--draft-min", "2"), False),
    (("--draft-tree", "chain"), False),
    (("--accept", "rejection"), False),
    (("--mode", "plain"), False),
]


@pytest.fixture(scope="module")
def plain(target: Path) -> str:
    with Duo(target, n_ctx=512, **EXACT) as d:
        return d.generate(4 * PASSAGE, mode="plain", max_tokens=24, temperature=0, ignore_eos=True).text


@pytest.mark.parametrize(("options", "beside"), mostly_daily(SAID, [*SAID[:5], SAID[7]]))
def test_beside_a_draft_unless_the_user_says_what_guesses(
    options: tuple[str, ...], beside: bool, target: Path, plain: str, run: Run
) -> None:
    code, out, err = run("-m", target, "-md", DRAFT, *LINE, *KERNELS, *options)
    assert code == 0 and ("guesses from the draft and n-grams (ngram-map-k)" in err.splitlines()[0]) is beside
    assert told(out)[0] == plain or "rejection" in options


def test_pythons_auto_goes_by_the_same_rule(target: Path) -> None:
    shutil.copy(DRAFT, target.with_name("draft-small.gguf"))
    for options, found in (({}, ["draft-simple", "ngram-map-k"]), ({"n_draft": 4}, None), ({"n_draft_min": 1}, None)):
        with Duo(target, "auto", n_ctx=256, **EXACT, **options) as d:  # type: ignore[arg-type]
            assert d.draft is not None and d.defaults.get("spec_type") == found
    target.with_name("draft-small.gguf").unlink()


def test_not_for_a_target_that_computes_again_after_a_wrong_guess(tmp_path: Path, run: Run) -> None:
    model = tiny("mamba", DRAFT, tmp_path / "mamba.gguf")
    code, _, err = run("-m", model, *LINE, *KERNELS)
    assert code == 0 and "plain decoding: no draft was given" in err.splitlines()[0]


def test_the_commands_that_measure_a_draft_ask_for_one(target: Path, run: Run) -> None:
    code, _, err = run("race", "-m", target, "-n", "8")
    assert code == 1 and "a race needs a draft" in err


def test_a_request_with_another_rule_has_none(duo_pair: Duo, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under the other rules guesses change the text. Who asked for n-grams has them."""
    monkeypatch.setitem(duo_pair.defaults, "spec_type", ["ngram-map-k"])
    for unasked in (False, True):
        monkeypatch.setattr(duo_pair, "ngrams_unasked", unasked, raising=False)
        for given, guessed in (({}, True), ({"accept": "noise"}, True), ({"accept": "rejection"}, not unasked)):
            options = text_options(TextFields(**given), duo_pair)
            assert ("spec_type" in options) is guessed, (unasked, given)
        assert text_options(TextFields(accept="typical", spec_type="ngram-map-k"), duo_pair)["spec_type"]
