"""Drafts with another vocabulary: what they read and guess, for vocabularies of all kinds and at random.

Every guess is compared with one that is computed anew (translations.py), and every text with that of the target alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from marks import SLOW_S
from sizes import mostly_daily, size
from translated_pairs import SAMPLINGS, WAYS, Case, check_guesses, check_texts
from written_vocabularies import KINDS, Kind, Vocabulary, byte_pairs, sentence_pieces, word_pieces

pytestmark = pytest.mark.full

LETTERS = "abcdefgh é今😀."
NAMES = ("<s>", "</s>", "<|tool|>", "<|image|>")


def vocabulary(kind: Kind, words: Sequence[str], letters: str = LETTERS, cut: Sequence[bytes] = (), *,
               names: Sequence[str] = NAMES[:2], bare: bool = False) -> Vocabulary:  # fmt: skip
    """cut: more tokens for byte-pair encoding, also of halves of characters. bare: no token before a text (byte-pair
    encoding), no tokens of bytes (SentencePiece)."""
    if kind == "gpt2":
        return byte_pairs([*(w.encode() for w in words), *cut], [names[0], *names[2:], names[1]], begins=not bare)
    if kind == "llama":
        return sentence_pieces(words, letters, [names[0], *names[2:], names[1]], by_bytes=not bare)
    return word_pieces(words, letters)


# ---- vocabularies that differ in known ways

WORDS = ("ab", "abc", "cd", "defgh", "gh ", " é", "é今", "今😀", ".a", "😀.", "h é")
OTHER_WORDS = ("bc", "bcd", "efg", "fghé", " é今", "😀.a", "abcdefgh", "a")
CUT = (b"\xbb\x8a\xf0", b"\xa9\xe4\xbb", b"\x9f\x98")  # halves of characters: of 今 and 😀, of é and 今, of 😀


@pytest.mark.parametrize(
    ("target", "draft"),
    mostly_daily(product(KINDS, KINDS), [("gpt2", "llama"), ("llama", "gpt2"), ("gpt2", "bert"), ("bert", "llama")]),
)
def test_each_kind_guesses_for_each_other(target: Kind, draft: Kind, tmp_path: Path) -> None:
    of_target = vocabulary(target, WORDS, cut=CUT, names=NAMES[:3])
    of_draft = vocabulary(draft, OTHER_WORDS, cut=CUT[:1], names=(*NAMES[:2], NAMES[3]))
    n = len(of_target.tokens)
    case = Case(of_target, of_draft, LETTERS, ((of_target.begin, n - 1, n - 2), (n - 3, 2, of_target.end, n - 4)))
    with case.loaded(tmp_path) as (d, probe):
        assert check_guesses(d, case, probe) > 3
        for sampling, way in zip(SAMPLINGS, WAYS, strict=True):
            check_texts(d, case, sampling, way)


# ---- and at random


def _cut(draw: st.DrawFn, words: Sequence[str]) -> list[bytes]:
    whole = "".join(words).encode()
    places = st.integers(0, max(0, len(whole) - 1))
    return [whole[at : at + n] for at, n in draw(st.lists(st.tuples(places, st.integers(2, 5)), max_size=6))]


@st.composite
def vocabularies(draw: st.DrawFn, letters: str) -> Vocabulary:
    words = draw(st.lists(st.text(letters, min_size=1, max_size=6), min_size=3, max_size=30, unique=True))
    names = [*NAMES[:2], *draw(st.lists(st.sampled_from(NAMES[2:]), unique=True))]
    return vocabulary(
        draw(st.sampled_from(KINDS)), words, letters, _cut(draw, words), names=names, bare=draw(st.booleans())
    )


@st.composite
def cases(draw: st.DrawFn) -> Case:
    letters = "".join(draw(st.permutations(LETTERS))[: draw(st.integers(4, len(LETTERS)))])
    target, draft = draw(vocabularies(letters)), draw(vocabularies(letters))
    ids = st.integers(0, len(target.tokens) - 1)
    prompts = draw(st.lists(st.lists(ids, min_size=1, max_size=12), min_size=2, max_size=3))
    seed = draw(st.integers(0, 99))
    return Case(target, draft, letters, tuple(map(tuple, prompts)), (seed, seed + draw(st.booleans())))


RANDOM = settings(
    max_examples=size(4, 400),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.mark.random
@pytest.mark.timeout(SLOW_S)
@RANDOM
@given(case=cases(), sampling=st.sampled_from(SAMPLINGS), way=st.sampled_from(WAYS))
def test_random_vocabularies(tmp_path: Path, case: Case, sampling: dict[str, Any], way: dict[str, Any]) -> None:
    with case.loaded(tmp_path) as (d, probe):
        assume(d.engine.shared_vocabulary is not None)  # two of the same tokens are one vocabulary
        check_guesses(d, case, probe)
        check_texts(d, case, sampling, way)
