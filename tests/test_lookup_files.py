"""--lookup-cache-static and --lookup-cache-dynamic: llama.cpp's files of n-grams are read, used and written."""

from __future__ import annotations

import struct
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from conftest import EXACT
from hosts import KERNELS

from duo import BadValueError, Duo
from duo.models.demo import demo_pair

TARGET, DRAFT = demo_pair()
PROMPT = "Once upon a time there was a little girl"
TEXT: dict[str, Any] = {"max_tokens": 48, "temperature": 0.0, "ignore_eos": True}
OPTIONS: dict[str, Any] = {"n_ctx": 512, **EXACT}
Counts = Mapping[tuple[int, ...], Mapping[int, int]]


def written(path: Path, counts: Counts) -> Path:
    """As common_ngram_cache_save does (llama.cpp: common/ngram-cache.cpp)."""
    parts = []
    for key, following in counts.items():
        parts.append(struct.pack("=5i", *key, *[-1] * (4 - len(key)), len(following)))
        parts += [struct.pack("=2i", token, n) for token, n in following.items()]
    path.write_bytes(b"".join(parts))
    return path


def read(path: Path) -> dict[tuple[int, ...], dict[int, int]]:
    """As common_ngram_cache_load does."""
    data, at, found = path.read_bytes(), 0, {}
    while at < len(data):
        *key, n = struct.unpack_from("=5i", data, at)
        pairs = struct.unpack_from(f"={2 * n}i", data, at + 20)
        found[tuple(t for t in key if t != -1)] = dict(zip(pairs[::2], pairs[1::2], strict=True))
        at += 20 + 8 * n
    return found


def counted(tokens: Sequence[int], lengths: Sequence[int] = (1, 2, 3, 4), times: int = 1) -> Counts:
    """As common_ngram_cache_update does."""
    found: dict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
    for n in lengths:
        for i in range(n, len(tokens)):
            found[tuple(tokens[i - n : i])][tokens[i]] += times
    return found


@pytest.fixture(scope="module")
def plain() -> list[int]:
    """Prompt and text, in tokens."""
    with Duo(TARGET, **OPTIONS) as d:
        return [*d.tokenize(PROMPT.encode()), *d.generate(PROMPT, **TEXT).tokens]


def test_a_static_cache_guesses(plain: list[int], tmp_path: Path) -> None:
    file = written(tmp_path / "static.bin", counted(plain, [2], times=3))
    before = file.read_bytes()
    for draft in (None, DRAFT):
        with Duo(TARGET, draft, lookup_cache_static=file, **OPTIONS) as d:
            r = d.generate(PROMPT, **TEXT)
            assert [*d.tokenize(PROMPT.encode()), *r.tokens] == plain
            assert draft is not None or r.timings["draft_ngram_n_accepted"] >= 10
    assert file.read_bytes() == before


def test_a_dynamic_cache_grows_and_guesses(plain: list[int], tmp_path: Path) -> None:
    file = tmp_path / "dynamic.bin"
    options = {"lookup_cache_dynamic": str(file), "spec_type": "ngram-cache", **OPTIONS}
    with Duo(TARGET, **options) as d:
        first = d.generate(PROMPT, **TEXT)
        assert not file.exists()
    assert read(file) == counted(plain)
    for times in (2, 3, 4):
        with Duo(TARGET, **options) as d:
            r = d.generate(PROMPT, **TEXT)
            assert r.tokens == first.tokens
        assert read(file) == counted(plain, times=times)
    few, many = first.timings.get("draft_ngram_n_accepted", 0), r.timings["draft_ngram_n_accepted"]
    assert many >= few + 10


def test_both_from_the_command_line(plain: list[int], tmp_path: Path, run: Callable[..., tuple[int, str, str]]) -> None:
    static = written(tmp_path / "s.bin", counted(plain, [2], times=3))
    line = ("-m", TARGET, "-p", PROMPT, "-n", "48", "--temp", "0", "--ignore-eos", "-c", "512", "--no-display-prompt",
            *KERNELS)  # fmt: skip
    code, text, _ = run(*line, "-md", "none")
    assert code == 0
    again = run(*line, "-lcs", static, "-lcd", tmp_path / "d.bin", "--spec-type", "ngram-cache")
    assert again[:2] == (0, text) and read(tmp_path / "d.bin") == counted(plain)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "there is no n-gram cache"),
        (b"x" * 10, "is damaged, or no n-gram cache of llama.cpp"),
        (struct.pack("=7i", 1, 2, -1, -1, 1, 10**6, 5), "has tokens that this model does not have"),
    ],
)
def test_a_file_that_is_none(content: bytes | None, why: str, tmp_path: Path) -> None:
    file = tmp_path / "a.bin"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(BadValueError, match=why):
        Duo(TARGET, n_ctx=64, lookup_cache_static=file)
    with pytest.raises(BadValueError, match="is in no folder"):
        Duo(TARGET, n_ctx=64, lookup_cache_dynamic=tmp_path / "no" / "a.bin")
    if content is not None:
        with pytest.raises(BadValueError, match=why):
            Duo(TARGET, n_ctx=64, lookup_cache_dynamic=file)
        assert file.read_bytes() == content
