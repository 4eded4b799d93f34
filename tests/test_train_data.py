"""The data of a training: what files may hold, what is held out, what training says without PyTorch."""

from __future__ import annotations

import gzip
import json
import lzma
from pathlib import Path

import numpy as np
import pytest
from needs import need_torch

from duo import BadValueError, DuoError
from duo.cli.main import main
from duo.models.demo import demo_pair
from duo.train import pytorch
from duo.train.bf16 import from_bf16, to_bf16
from duo.train.documents import Document, read_documents
from duo.train.lessons import Folder
from duo.train.recipe import DataRecipe, Pieces

TARGET, _ = demo_pair()
RECIPE = DataRecipe(
    length=16, written=0.5, prompt_length=4, temperatures=(1.0, 0.0), top=8, seed=3, layers=(1, 2, 3), n_embd=320
)


def test_files_hold_texts_prompts_and_conversations(tmp_path: Path) -> None:
    lines = [
        '"one"',
        '{"text": "two"}',
        "",
        '{"prompt": "three"}',
        '{"turns": ["four", "five"]}',
        '{"text": " "}',
        json.dumps({"messages": [{"role": "user", "content": "six"}, {"role": "assistant", "content": "no"}]}),
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(lines), "utf-8")
    (tmp_path / "b.json.xz").write_bytes(lzma.compress(json.dumps(["eight"]).encode()))
    (tmp_path / "c.txt.gz").write_bytes(gzip.compress(b"nine"))
    found = read_documents([tmp_path / name for name in ("a.jsonl", "b.json.xz", "c.txt.gz")])

    def asked(text: str) -> Document:
        return Document(messages=({"role": "user", "content": text},), answered=True)

    assert found == [
        Document("one"), Document("two"), Document("three", answered=True), asked("four"), asked("six"),
        Document("eight"), Document("nine"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("a.jsonl", b'{"text": 5}', "line 1 of"),
        ("a.jsonl", b"\n{", "line 2 of"),
        ("a.json", b'{"text": "x"}', "is not a list"),
        ("a.txt", b"\xff", "not UTF-8"),
        ("a.xz", b"no", "damaged"),
        ("a.txt.gz", gzip.compress(b"nine", mtime=0)[:10] + b"\xff" * 12, "damaged"),
        ("a.txt", b"  ", "no text"),
        ("missing", None, "cannot be read"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, name: str, content: bytes | None, why: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(BadValueError, match=why):
        read_documents([tmp_path / name])


def pieces() -> Pieces:
    texts = [np.arange(100 * i, 100 * i + 90, dtype=np.int32) for i in range(1, 9)]
    return Pieces(RECIPE, [0], texts, [np.array([5, 6, 7], np.int32)])


def test_what_checks_the_training_is_not_learnt() -> None:
    p = pieces()
    held = {int(t) for piece in p.held_out for t in piece.tokens}
    learnt = {int(t) for i in range(200) for t in p.planned_text(i).tokens[1:]}
    assert held and not held & learnt
    assert all(w.temperature == 0.0 and w.n_write > 0 for w in map(p.check, range(20)))


def test_texts_are_written_and_read_in_the_share_that_was_asked_for() -> None:
    p = pieces()
    planned = [p.planned_text(i) for i in range(400)]
    assert [p.planned_text(i).tokens.tolist() for i in (3, 70)] == [planned[i].tokens.tolist() for i in (3, 70)]
    written = [w for w in planned if w.n_write]
    assert 0.4 < len(written) / len(planned) < 0.62
    assert {w.temperature for w in written} == {1.0, 0.0} and len({w.seed for w in written}) == len(written)
    assert all(w.tokens[0] == 0 and len(w.tokens) + w.n_write <= RECIPE.length for w in planned)
    answered = [w for w in planned if w.tokens.tolist() == [0, 5, 6, 7]]
    assert answered and all(w.n_write == 12 for w in answered)  # a prompt is always answered


def test_too_little_text_is_refused() -> None:
    with pytest.raises(BadValueError, match="shorter than two texts"):
        Pieces(RECIPE, [0], [np.arange(9, dtype=np.int32)], [])


def test_features_are_rounded_to_the_nearest_bfloat16() -> None:
    x = np.array([0.0, -0.0, 1.0, 1.00390625, 1.01171875, -3.1415927, 1e30, -1e-30], np.float32)
    found = from_bf16(to_bf16(x))
    assert found[:3].tolist() == [0.0, 0.0, 1.0]
    assert found[3] == 1.0 and found[4] == np.float32(1.015625)  # half-way: to the even one
    assert np.abs(found - x).max() <= np.abs(x).max() / 256 and np.allclose(found, x, rtol=2**-8)


def test_a_group_is_there_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "work", {"seed": 1})
    folder.put_texts("learn", 0, [([1, 2, 3], 2), ([4], 1)])
    texts = folder.texts("learn", 0)
    assert [texts.of(i).tolist() for i in range(len(texts))] == [[1, 2, 3], [4]] and texts.n_given.tolist() == [2, 1]
    assert folder.n_texts("learn", 0) == 2 and folder.n_lessons("learn", 0) == 0
    folder.put_lessons("learn", 0, {"tokens": texts.tokens})
    assert list(folder.groups("learn")) == [0]
    assert [f.name for f in (tmp_path / "work" / "lessons").iterdir()] == ["learn-00000"]
    with pytest.raises(BadValueError, match="another seed"):
        Folder(tmp_path / "work", {"seed": 2})


def test_a_run_without_a_text_leaves_its_folder_to_the_next(tmp_path: Path) -> None:
    """Data that could not be read made the folder, and the same command with other data is to work."""
    Folder(tmp_path / "work", {"data": "wrong"})
    folder = Folder(tmp_path / "work", {"data": "right"})
    folder.put_texts("check", 0, [([1, 2, 3], 2)])
    Folder(tmp_path / "work", {"data": "right"})
    with pytest.raises(BadValueError, match="another data"):
        Folder(tmp_path / "work", {"data": "wrong"})


def test_damaged_texts_and_lessons_are_said(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "work", {"seed": 1})
    folder.put_texts("learn", 0, [([1, 2, 3], 2)])
    arrays = {name: np.zeros(3, np.int32) for name in ("tokens", "starts", "n_given", "top_ids", "top_log_p")}
    folder.put_lessons("learn", 0, arrays)
    assert set(folder.lessons("learn", 0)) == set(arrays)
    (tmp_path / "work" / "lessons" / "learn-00000" / "starts.npy").unlink()
    with pytest.raises(DuoError, match=r"learn-00000 is damaged .*; delete it and run the command again"):
        folder.lessons("learn", 0)
    texts = tmp_path / "work" / "texts" / "learn-00000.npz"
    whole = texts.read_bytes()
    for content in (b"", whole[: len(whole) // 2], b"PK" + whole[2:50]):
        texts.write_bytes(content)
        with pytest.raises(DuoError, match=r"learn-00000\.npz is damaged .*; delete it and run the command again"):
            folder.texts("learn", 0)


def test_a_document_knows_its_place(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('"x"\n{"messages": [{"content": "no role"}]}', "utf-8")
    assert read_documents([tmp_path / "a.jsonl"])[1].where == f"line 2 of {tmp_path / 'a.jsonl'}"


def test_without_pytorch_training_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(pytorch, "find_spec", lambda name: None)
    for kind in ("head", "draft"):
        args = ["-m", str(TARGET), "--data", str(tmp_path / "x"), "-o", str(tmp_path / "y.gguf")]
        assert main([f"train-{kind}", *args]) == 1
        assert "pip install 'duo-llama[train]'" in capsys.readouterr().err
        assert main([f"train-{kind}", "-m", str(TARGET), "--plan"]) == 1  # it would measure this machine
        err = capsys.readouterr().err
        assert "pip install 'duo-llama[train]'" in err and "--tflops" in err


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (["train-head"], "-m is missing"),
        (["train-draft", "-m", "x.gguf"], "-o is missing"),
        (["train-head", "-m", "x.gguf", "-o", "y.gguf"], "--data is missing"),
        (["train-head", "--layers", "1,2"], "three numbers"),
        (["train-head", "--like", "8b"], "--like is for --plan"),
        (["train-head", "--plan"], "one target"),
        (["train-head", "--plan", "--like", "8b", "--tflops", "1"], "belong together"),
        (["train-head", "--plan", "--like", "8b", "--tflops", "1", "--bandwidth", "1", "--rows", "999999"], "--rows"),
        (
            ["train-head", "--plan", "--like", "8b", "--tflops", "1", "--bandwidth", "1", "--layers", "2,3,32"],
            "layer 32",
        ),
        (["train-draft", "--plan", "--like", "8b", "--tflops", "1", "--bandwidth", "1", "--n-head", "7"], "even parts"),
        (
            ["train-draft", "--plan", "--like", "8b", "--tflops", "1", "--bandwidth", "1", "--length", "999999"],
            "context",
        ),
    ],
)
def test_a_mistake_is_one_sentence(args: list[str], why: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(args) == 1
    err = capsys.readouterr().err
    assert why in err and err.startswith("duo: ") and err.count("\n") == 1


@pytest.mark.daily
def test_what_is_read_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    need_torch()
    data = tmp_path / "data.txt"
    data.write_text("Once upon a time", "utf-8")
    for out in (TARGET, data):
        assert main(["train-draft", "-m", str(TARGET), "--data", str(data), "-o", str(out)]) == 1
        assert "is read by this command" in capsys.readouterr().err
    assert data.read_text("utf-8") == "Once upon a time" and not Path(f"{TARGET}.work").exists()
