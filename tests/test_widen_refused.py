"""What cannot be widened is refused in one sentence, and nothing is left behind; the command says the same."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf_files import tiny_gemma3
from model_files import random_model

from duo.cli.commands.dev import parse_size
from duo.errors import BadValueError, DoesNotFitError, DuoError, UnknownModelError
from duo.gguf_tools.random_model import randomize
from duo.gguf_tools.whole_file import CheckedGgufReader
from duo.gguf_tools.widen import SAME, widen

Run = Callable[..., tuple[int, str, str]]
DATA = Path(__file__).parents[1] / "src" / "duo" / "data"
TARGET = DATA / "duo-demo-target-q8_0.gguf"
DRAFT = DATA / "duo-demo-draft-q8_0.gguf"


@pytest.fixture
def big(tmp_path: Path) -> Path:
    return tmp_path / "big.gguf"


@pytest.mark.parametrize(
    ("wanted", "complaint"),
    [
        ({}, "no size was given"),
        ({"size": 1e9, "n_embd": 320, "n_ff": 896, "n_layer": 4}, "leave one out"),
        ({"n_embd": 256}, "n_embd 256 is less than its own 320"),
        ({"n_ff": -1}, "n_ff -1 is less"),
        ({"n_layer": 0}, "n_layer 0 is less"),
        ({"n_layer": 513}, "512"),
        ({"n_embd": 330}, "n_embd 330 is not a multiple of 32, the block of q8_0"),
        ({"n_ff": 900}, "n_ff 900 is not a multiple of 32"),
        ({"size": 1e6}, "the requested 1000000; ask for a larger"),
        ({"size": float("nan")}, "the requested nan"),
        ({"size": float("inf")}, "the requested inf"),
        ({"size": 1e9, "n_embd": 320, "n_ff": 896}, "out of reach"),
        ({"n_embd": 512, "type": "q4_k"}, "cannot be written; choose one of f32, .*llama-quantize"),
        ({"n_embd": 512, "type": "q9"}, "type 'q9' cannot be written"),
    ],
)
def test_refused_requests(wanted: dict[str, Any], complaint: str, big: Path) -> None:
    with pytest.raises(BadValueError, match=complaint) as error:
        widen(TARGET, big, **wanted)
    assert "\n" not in str(error.value)
    assert list(big.parent.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        (b"GGUF", b"GGML", "not a complete GGUF"),
        (b"llama", b"qwen3", "architecture 'qwen3' cannot be widened; only llama, qwen2, gemma3 and glm4moe can"),
        (b"blk.1.ffn_up.weight", b"blk.7.ffn_up.weight", "'blk.1.ffn_up.weight' is not in every layer"),
        (b"blk.1.ffn_up.weight", b"blk.0.ffn_up.weight", "not a complete GGUF .*duplicated"),
        (b"output_norm.weight", b"output_nose.weight", "tensor 'output_nose.weight' is unknown"),
        (b"1.attn_norm.weight", b"1.attn_output.bias", "'blk.1.attn_norm.weight' is not in every layer"),
        (b"output_norm.weight", b"blk.0.attn_q.bias\0", "is unknown"),
        (b"embedding_length\4\0\0\0\xc0", b"embedding_length\4\0\0\0\xe0", "does not match the metadata"),
        (b"head_count_kv\4\0\0\0\3", b"head_count_kv\4\0\0\0\2", "3 heads and 2 KV heads are not possible"),
        (b"block_count", b"block_court", "'llama.block_count' is missing"),
        (b"block_count\4\0\0\0\2\0\0", b"block_count\4\0\0\0\2\0\1", "65538 layers, .* are not possible"),
        (b"block_count\4\0\0\0\2", b"block_count\6\0\0\0\2", "'llama.block_count' is .*, not int"),
        (b"token_type\t\0\0\0\5\0\0\0\0", b"token_type\t\0\0\0\5\0\0\0\1", "it ends after .* are needed"),
    ],
)
def test_refused_sources(old: bytes, new: bytes, complaint: str, big: Path) -> None:
    small = big.with_name("small.gguf")
    assert len(old) == len(new)
    content = DRAFT.read_bytes()
    assert old in content
    small.write_bytes(content.replace(old, new, 1))
    with pytest.raises(BadValueError, match=complaint) as error:
        widen(small, big, n_embd=512)
    assert str(small) in str(error.value)
    assert "\n" not in str(error.value)
    assert not big.exists()


@pytest.mark.parametrize("n_bytes", [0, 10, 100, 5_000, 100_000, 2_000_000])
def test_truncated_sources(n_bytes: int, big: Path) -> None:
    small = big.with_name("small.gguf")
    small.write_bytes(DRAFT.read_bytes()[:n_bytes])
    with pytest.raises(UnknownModelError, match="not a complete GGUF") as error:
        widen(small, big, n_embd=512)
    assert "\n" not in str(error.value)


def test_no_source(big: Path) -> None:
    for path in (big.with_name("none.gguf"), big.parent):
        with pytest.raises(UnknownModelError, match="no such file"):
            widen(path, big, n_embd=512)


def test_refused_outputs(tmp_path: Path) -> None:
    small = tmp_path / "small.gguf"
    small.write_bytes(DRAFT.read_bytes())
    with pytest.raises(BadValueError, match="is the source itself"):
        widen(small, small, n_embd=256)
    with pytest.raises(BadValueError, match="no directory"):
        widen(small, tmp_path / "none" / "big.gguf", n_embd=256)
    with pytest.raises(BadValueError, match="is a directory"):
        widen(small, tmp_path, n_embd=256)
    with pytest.raises(DoesNotFitError, match="are free"):
        widen(small, tmp_path / "big.gguf", n_embd=32000, n_ff=10**9)
    assert list(tmp_path.iterdir()) == [small]


def test_what_an_architecture_does_not_allow(big: Path) -> None:
    small = random_model(big.with_name("small.gguf"), "qwen2", "q4_K")
    with pytest.raises(BadValueError, match="the heads of a qwen2 fill its width; ask for an n_embd that 128 divides"):
        widen(small, big, n_embd=288)
    with pytest.raises(BadValueError, match="n_ff 544 is not a multiple of 256, the block of q4_k"):
        widen(small, big, n_ff=544, type=SAME)
    gemma = tiny_gemma3(TARGET, big.with_name("gemma.gguf"), window=8)
    with pytest.raises(BadValueError, match=r"with 62 layers llama\.cpp takes a gemma3 for the 27B"):
        widen(gemma, big, n_layer=62)
    assert not big.exists()


def test_interrupted_leaves_nothing(big: Path) -> None:
    def interrupt(name: str, done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        widen(DRAFT, big, n_embd=256, progress=interrupt)
    assert list(big.parent.iterdir()) == []


def test_command(big: Path, run: Run) -> None:
    code, out, _ = run("dev", "widen", DRAFT, "-o", big, "--size", "20M", "--type", "q8_0")
    assert code == 0 and f"{big}: 0.02" in out
    code, out, err = run("dev", "widen", DRAFT, "-o", big, "--n-embd", "100")
    sentence = f"duo: {DRAFT}: n_embd 100 is less than its own 192; a model can only be made larger\n"
    assert (code, out, err) == (1, "", sentence)
    code, out, err = run("dev", "widen", DRAFT, "-o", big, "--size", "big")
    assert (code, out, err) == (1, "", "duo: --size 'big' is not a size; write it as 600M, 1.5G or 2GiB\n")


def test_the_old_command_name_points_to_the_new_one(run: Run) -> None:
    assert run("widen", DRAFT, "-o", "big.gguf") == (1, "", "duo: duo widen is now duo dev widen\n")


def test_a_random_model_has_the_vocabulary_and_other_weights(tmp_path: Path, run: Run) -> None:
    made = tmp_path / "random.gguf"
    code, out, _ = run("dev", "random-model", DRAFT, "-o", made)
    assert code == 0 and out.startswith(f"{made}: ")
    mine, its = CheckedGgufReader(made), CheckedGgufReader(DRAFT)
    key = "tokenizer.ggml.tokens"
    assert mine.fields[key].contents() == its.fields[key].contents()
    assert [t.name for t in mine.tensors] == [t.name for t in its.tensors]
    assert not any(
        np.array_equal(a.data, b.data) for a, b in zip(mine.tensors, its.tensors, strict=True) if len(a.shape) > 1
    )


@pytest.mark.parametrize(
    ("source", "out", "error", "complaint"),
    [
        ("none.gguf", "big.gguf", UnknownModelError, "no such file"),
        ("part.gguf", "big.gguf", UnknownModelError, "not a complete GGUF"),
        ("small.gguf", "small.gguf", BadValueError, "is the source itself"),
        ("small.gguf", "none/big.gguf", DuoError, "could not be written"),
    ],
)
def test_a_random_model_that_cannot_be_made(
    source: str, out: str, error: type[DuoError], complaint: str, tmp_path: Path
) -> None:
    (tmp_path / "small.gguf").write_bytes(DRAFT.read_bytes())
    (tmp_path / "part.gguf").write_bytes(DRAFT.read_bytes()[:5000])
    with pytest.raises(error, match=complaint):
        randomize(tmp_path / source, tmp_path / out, seed=1)


def test_parse_size() -> None:
    sizes = {"600M": 6e8, "1.5G": 1.5e9, "1.5gb": 1.5e9, "2GiB": 2.0**31, " 10 k ": 1e4, "123456": 123456.0}
    assert {text: parse_size(text) for text in sizes} == sizes


@pytest.mark.parametrize(("module", "more"), [("widen", []), ("widen_head", ["--target", TARGET])])
def test_kill_leaves_nothing(
    run: Run, big: Path, monkeypatch: pytest.MonkeyPatch, module: str, more: list[str | Path]
) -> None:
    monkeypatch.setattr(f"duo.gguf_tools.{module}.{module}", lambda *_, **__: signal.raise_signal(signal.SIGTERM))
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        assert run("dev", "widen", TARGET, "-o", big, "--size", "1G", *more)[0] == 130
    finally:
        signal.signal(signal.SIGTERM, before)
