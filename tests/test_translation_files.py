"""Drafts with another vocabulary, with published tokenizers: the files ggml-vocab-*.gguf of llama.cpp's models folder,
in the sdist that `make wheel` unpacks or where DUO_VOCABULARIES says (nothing of them is in this project)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import zip_longest
from pathlib import Path

import numpy as np
import pytest
from gguf_files import I32, Value, header_of
from translated_pairs import SAMPLINGS, WAYS, Case, check_guesses, check_texts
from translations import Translation
from written_vocabularies import CONTROL, NORMAL, Token, Vocabulary

from duo import Duo, DuoError

pytestmark = [pytest.mark.proof, pytest.mark.timeout(7200)]

ORDER = "abcdefgh é今😀."
UNPACKED = Path(__file__).parents[1] / "build/wheel"


@dataclass(frozen=True)
class FileVocabulary(Vocabulary):
    """keys: of the file's header."""

    keys: dict[str, Value] = field(default_factory=dict)

    @property
    def header(self) -> dict[str, Value]:
        return self.keys


@lru_cache(2)
def vocabulary(path: Path) -> FileVocabulary:
    keys = {name: value for name, value in header_of(path).items() if name.startswith("tokenizer.")}
    texts = keys["tokenizer.ggml.tokens"][1]
    kinds = keys.get("tokenizer.ggml.token_type", (I32, [NORMAL] * len(texts)))[1]
    with Duo(path, vocab_only=True) as d:
        pieces = [d.local_model.piece(i) for i in range(len(texts))]
        begin, end = d.token_bos(), d.token_eos()
        begins = d.tokenize("")[:1] == [begin]
    # libllama makes more of them control tokens than the file says; unused ones write nothing, either.
    tokens = tuple(
        Token(text, piece, kind if piece else CONTROL) for text, piece, kind in zip(texts, pieces, kinds, strict=True)
    )
    return FileVocabulary(keys["tokenizer.ggml.model"][1], tokens, begin, end, begins, keys=keys)


def files() -> list[Path]:
    given = os.environ.get("DUO_VOCABULARIES")
    folders = [Path(given)] if given else sorted(UNPACKED.glob("llama_cpp_python-*/vendor/llama.cpp/models"))[-1:]
    found = [f for folder in folders for f in sorted(folder.glob("ggml-vocab-*.gguf"))]
    if not found:
        pytest.skip("no files ggml-vocab-*.gguf: run make wheel, or name their folder in DUO_VOCABULARIES")
    return found


def pairs() -> Iterator[tuple[Path, Path]]:
    """Each vocabulary is a target once, and once a draft, mostly of another kind."""
    by_kind = sorted(files(), key=lambda f: str(header_of(f)["tokenizer.ggml.model"][1]))
    half = len(by_kind) // 2
    found = [f for two in zip_longest(by_kind[:half], by_kind[half:]) for f in two if f is not None]
    yield from zip(found, [*found[1:], found[0]], strict=True)


def test_published_vocabularies(tmp_path: Path) -> None:
    """Texts of random tokens and of the letters go on as the target's, and guesses are those that are expected."""
    rng = np.random.default_rng(1)
    for target, draft in pairs():
        case = Case(vocabulary(target), vocabulary(draft), ORDER, (), noise=0.3)
        ids = rng.integers(0, len(case.target.tokens), (2, 8))
        letters = [i for i, t in enumerate(case.target.tokens) if t.piece and t.piece in ORDER.encode()]
        prompts = (*map(tuple, ids.tolist()), tuple(rng.choice(letters, 8).tolist()))
        case = replace(case, prompts=prompts)
        words = Translation(case.target, case.draft)
        if words.shared < 0.1:
            with pytest.raises(DuoError, match="the draft does not fit the target"), case.loaded(tmp_path):
                pass
            print(f"{target.stem} and {draft.stem}: {words.shared:.0%} shared, refused")
            continue
        with case.loaded(tmp_path) as (d, probe):
            n_right = check_guesses(d, case, probe)
            for sampling, way in zip(SAMPLINGS, WAYS, strict=True):
                check_texts(d, case, sampling, way)
        print(f"{target.stem} and {draft.stem}: {words.shared:.0%} shared, {n_right} guesses right", flush=True)
