"""Files that are no models, cut off or damaged: never a crash, never a hang, one sentence or a text."""

import os
import random
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from loads import Outcome, assert_harmless, load, load_all
from rights import of_an_ordinary_user
from sizes import size

import duo
from duo.gguf_tools.whole_file import CheckedGgufReader
from duo.models.demo import demo_pair

pytestmark = pytest.mark.full

TARGET, DRAFT = demo_pair()
HEADER_BYTES = {source: int(CheckedGgufReader(source).data_offset) for source in (TARGET, DRAFT)}
N_FLIPS = size(15, 300)

PNG = bytes.fromhex("89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c489") + zlib.compress(b"\0" * 5)


def test_no_model_at_all(tmp_path: Path) -> None:
    paths = {
        name: tmp_path / name for name in ("missing", "empty", "text", "png", "magic", "zeros", "pipe", "old", "loop")
    }
    paths["empty"].write_bytes(b"")
    paths["text"].write_text("Once upon a time\n" * 100)
    paths["png"].write_bytes(PNG)
    paths["magic"].write_bytes(b"GGUF")
    paths["zeros"].write_bytes(b"GGUF" + bytes(100_000))
    paths["old"].write_bytes(b"GGUF\x01\0\0\0" + bytes(1000))
    paths["loop"].symlink_to(paths["loop"])
    os.mkfifo(paths["pipe"])
    paths["directory"] = tmp_path
    paths["device"] = Path("/dev/zero")
    paths["long"] = tmp_path / ("x" * 300)
    why = {
        "missing": "there is no file", "loop": "cannot be read", "long": "cannot be read",
        "directory": "is a directory", "pipe": "not a regular file", "device": "not a regular file",
        "empty": "is not a GGUF file", "text": "is not a GGUF file", "png": "is not a GGUF file",
        "magic": "corrupt header (4 bytes)", "zeros": "corrupt header", "old": "corrupt header",
    }  # fmt: skip
    cases: list[list[Any]] = [models for path in paths.values() for models in ([path], [TARGET, path])]
    outcomes = load_all((models, {}) for models in cases)
    for (name, path), as_target, as_draft in zip(paths.items(), outcomes, outcomes, strict=True):
        assert as_target == as_draft, name
        assert as_target.what == "refused"
        assert why[name] in as_target.text
        assert str(path) in as_target.text


def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    secret = tmp_path / "secret.gguf"
    secret.write_bytes(TARGET.read_bytes())
    secret.chmod(0)
    with of_an_ordinary_user(), pytest.raises(duo.DuoError, match="check its permissions"):
        duo.Duo(secret, n_ctx=64)


@pytest.mark.parametrize("source", [TARGET, pytest.param(DRAFT, marks=pytest.mark.daily)], ids=["target", "draft"])
def test_truncated_at_twenty_lengths(source: Path, tmp_path: Path) -> None:
    data = source.read_bytes()
    header = HEADER_BYTES[source]
    lengths = [5, 8, 16, 23, 24, 25, 60, 500, 5000, 60_000, header - 1000, header - 1, header, header + 1]
    lengths += [len(data) // 3, len(data) // 2, len(data) - 100_000, len(data) - 32, len(data) - 2, len(data) - 1]
    assert len(set(lengths)) == 20
    path = tmp_path / "cut.gguf"

    def cases() -> Iterator[tuple[list[Any], dict[str, Any]]]:
        for n in lengths:
            path.write_bytes(data[:n])
            yield ([path] if source == TARGET else [TARGET, path]), {}

    for n, outcome in zip(lengths, load_all(cases()), strict=True):
        assert outcome.what == "refused", n
        assert "truncated" in outcome.text, n
        assert str(n) in outcome.text, n


def flipped(seed: int) -> tuple[str, str, bytes]:
    """Which file, which part of it, and the file with a few bytes of that part changed."""
    rng = random.Random(seed)
    which, source = rng.choice([("target", TARGET), ("draft", DRAFT)])
    data = bytearray(source.read_bytes())
    header = HEADER_BYTES[source]
    # What the numbers of the model are, where its tensors lie, what its tokens are called, and the weights.
    part, low, high = rng.choice(
        [("keys", 0, 1000), ("tensors", header - 2500, header), ("header", 0, header), ("data", header, len(data))]
    )
    for _ in range(rng.choice([1, 1, 2, 4])):
        at = rng.randrange(low, high)
        data[at] = data[at] ^ 1 << rng.randrange(8) if rng.random() < 0.5 else rng.randrange(256)
    return which, part, bytes(data)


@pytest.mark.slow
@pytest.mark.random
def test_random_byte_flips(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "flipped.gguf"
    what: list[tuple[str, str]] = []

    def cases() -> Iterator[tuple[list[Any], dict[str, Any]]]:
        for seed in range(N_FLIPS):
            which, part, data = flipped(seed)
            path.write_bytes(data)
            what.append((which, part))
            yield ([path, DRAFT] if which == "target" else [TARGET, path]), {}

    counts: Counter[tuple[str, str]] = Counter()
    for seed, outcome in enumerate(load_all(cases())):
        assert_harmless(outcome, f"seed {seed}, {what[seed]}")
        counts[what[seed][1], outcome.what] += 1
    with capsys.disabled():
        print(f"\n{N_FLIPS} flips: " + ", ".join(f"{part} {end} {n}" for (part, end), n in sorted(counts.items())))
    assert counts["data", "loaded"] > N_FLIPS / 8
    assert sum(n for (_, end), n in counts.items() if end == "refused") > N_FLIPS / 4


@pytest.mark.daily
def test_a_context_that_does_not_fit_into_memory() -> None:
    for options, option in (({"n_ctx": 2**30}, "-c/"), ({"n_ctx": 2**31 - 2}, "-c/"), ({"n_ctx_draft": 2**30}, "-cd/")):
        outcome: Outcome = load(TARGET, DRAFT, **options)
        assert outcome.what == "refused"
        assert "the cache needs" in outcome.text
        assert option in outcome.text
    assert load(TARGET, n_ctx=2**30, type_k="q4_0", type_v="q4_0").what == "refused"
    # What fits must not be refused.
    assert load(TARGET, DRAFT, n_ctx=30_000).what == "loaded"
