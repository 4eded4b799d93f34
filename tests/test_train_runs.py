"""Whole runs of duo train-head and duo train-draft: files, folders, going on, plans."""

from __future__ import annotations

import json
import resource
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf_files import STR, header_of, rewrite, tiny_gemma3
from model_files import TOKENS, options
from needs import need_torch

from duo import _core
from duo.cli.main import main
from duo.models import pairs
from duo.models.demo import demo_pair

torch = need_torch()

from eagle3_reader import Eagle3Reader  # noqa: E402

from duo.train import draft  # noqa: E402
from duo.train.dataset import Lessons  # noqa: E402
from duo.train.gguf_out import read_card  # noqa: E402
from duo.train.lessons import Folder  # noqa: E402
from duo.train.target_file import ModelFile  # noqa: E402
from duo.train.trainer import Trainer  # noqa: E402

pytestmark = [pytest.mark.full, pytest.mark.daily]

TARGET, DRAFT = demo_pair()
TEXT = "Once upon a time there was a little girl who lived in a house. "


def data(folder: Path) -> Path:
    file = folder / "data.jsonl"
    lines = [
        {"text": TEXT * 20},
        {"prompt": "The tin soldier"},
        {"turns": ["Tell me a tale."]},
        {"text": "def f():" * 40},
    ]
    file.write_text("\n".join(map(json.dumps, lines)), "utf-8")
    return file


def train(kind: str, folder: Path, *more: str) -> int:
    args = ["-m", str(TARGET), "--data", str(data(folder)), "-o", str(folder / "out.gguf"), "--tokens", "1200",
            "--length", "48", "--prompt-length", "8", "--batch-tokens", "400", "--cpu-kernels", "stock",
            "--n-embd", "32", "--n-head", "2", "--n-ff", "32"]  # fmt: skip
    return main([f"train-{kind}", *args, *more])


def test_a_head_is_trained_from_a_file_of_texts(tmp_path: Path) -> None:
    assert train("head", tmp_path, "--epochs", "2", "--steps", "3", "--rows", "512") == 0
    out = tmp_path / "out.gguf"
    card = read_card(out)
    assert card is not None
    assert card["recipe"]["layers"] == [1, 2, 3] and card["recipe"]["seed"] == 1
    assert card["data"]["files"] == ["data.jsonl"] and card["target"].startswith(TARGET.name)
    assert len(card["acceptance"]["by_position"]) == 3 and card["acceptance"]["chains"] > 100
    first, last = card["training"]["history"][0][1], card["training"]["history"][-1][1]
    assert last < first  # nats
    with Eagle3Reader(out) as reader:
        states = reader.encode(np.ones((2, 960), np.float32))
        logits, _ = reader.decode(TOKENS[:2], states, first=1)
    assert np.isfinite(logits).sum() == 2 * 512


def test_a_run_goes_on_where_it_stopped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train("draft", tmp_path, "--epochs", "1", "--n-layer", "1", "--type", "f32") == 0
    card = read_card(tmp_path / "out.gguf")
    lessons = {f: f.stat().st_mtime_ns for f in (tmp_path / "out.gguf.work" / "lessons").rglob("*.npy")}
    assert card is not None and lessons
    assert train("draft", tmp_path, "--epochs", "3", "--n-layer", "1", "--type", "f32") == 0
    more = read_card(tmp_path / "out.gguf")
    assert more is not None and more["training"]["steps"] > card["training"]["steps"]
    assert more["training"]["history"][: len(card["training"]["history"])] == card["training"]["history"]
    assert {f: f.stat().st_mtime_ns for f in lessons} == lessons
    capsys.readouterr()
    assert train("draft", tmp_path, "--epochs", "3", "--n-layer", "2") == 1
    assert "made for another network" in capsys.readouterr().err
    assert train("draft", tmp_path, "--seed", "2") == 1
    assert "was made with another seed (1, not 2)" in capsys.readouterr().err


@pytest.mark.slow
def test_stopping_and_going_on_gives_the_same_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").mkdir()
    same = ("--n-layer", "1", "--type", "f32", "--precision", "f32", "--epochs", "2")
    assert train("draft", tmp_path / "a", *same) == 0
    shutil.copytree(tmp_path / "a", tmp_path / "b", ignore=lambda _, names: {"checkpoint.pt", "out.gguf"} & {*names})
    whole = Trainer._step
    steps = 0

    def stopped(self: Trainer, *args: Any) -> None:
        nonlocal steps
        steps += 1
        if steps == 4:
            raise KeyboardInterrupt
        whole(self, *args)

    monkeypatch.setattr(Trainer, "_step", stopped)
    assert train("draft", tmp_path / "b", *same) == 130
    monkeypatch.setattr(Trainer, "_step", whole)
    assert train("draft", tmp_path / "b", *same) == 0
    a, b = (draft.read_llama(ModelFile(tmp_path / x / "out.gguf")) for x in "ab")
    assert all(torch.allclose(p, q, atol=1e-6) for p, q in zip(a.parameters(), b.parameters(), strict=True))


@pytest.mark.slow
def test_a_draft_goes_on_from_another(tmp_path: Path) -> None:
    assert train("draft", tmp_path, "--epochs", "0.2", "--lr", "1e-6", "--from", str(DRAFT)) == 0
    card = read_card(tmp_path / "out.gguf")
    assert card is not None and card["network"]["n_embd"] == 192
    assert card["acceptance"]["tokens_per_pass"] > 1.4  # an untrained one: 1.0


def test_features_are_those_of_the_tokens(tmp_path: Path) -> None:
    assert train("head", tmp_path, "--epochs", "0.01", "--steps", "1", "--rows", "512") == 0
    folder = next((tmp_path / "out.gguf.work" / "lessons").glob("learn-*"))
    arrays = {f.stem: np.load(f) for f in folder.glob("*.npy")}
    o = options(TARGET, ())
    o.feature_layers = [1, 2, 3]
    p = _core.Probe(o)
    start, end = arrays["starts"][2:4].tolist()
    tokens = arrays["tokens"][start:end].tolist()
    p.decode(tokens)
    stored = torch.from_numpy(arrays["features"][start:end]).view(torch.bfloat16).float().numpy()
    assert np.abs(stored - p.features()).max() <= np.abs(stored).max() / 128
    assert (arrays["top_ids"][start:end, 0] == p.logits().argmax(-1)).all()
    made_of = json.loads((tmp_path / "out.gguf.work" / "made_of.json").read_text("utf-8"))
    again = Lessons(Folder(tmp_path / "out.gguf.work", made_of), "check")
    assert again.n_tokens > 100 and sum(len(some) for some in again.epoch(1, 0, 400)) == len(again.items)


def test_a_target_whose_layers_cannot_be_read_is_refused_before_it_writes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tiny_gemma3(TARGET, tmp_path / "gemma.gguf", 128)
    args = ["-m", str(target), "--data", str(data(tmp_path)), "-o", str(tmp_path / "head.gguf")]
    assert main(["train-head", *args]) == 1
    assert "gemma" in capsys.readouterr().err
    assert not (tmp_path / "head.gguf.work").exists()


def test_what_cannot_teach_or_begin_a_draft_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    head = pairs.paths("demo-eagle3")[1]
    args = ["--data", str(data(tmp_path)), "-o", str(tmp_path / "out.gguf")]
    for kind in ("head", "draft"):
        assert main([f"train-{kind}", "-m", str(head), *args]) == 1
        assert "is a draft head, which writes nothing alone" in capsys.readouterr().err
    strange = rewrite(DRAFT, tmp_path / "strange.gguf", put={"tokenizer.ggml.tokens": (STR, _renamed(DRAFT, 700))})
    assert main(["train-draft", "-m", str(TARGET), "--from", str(strange), *args]) == 1
    assert "token 700 is 'renamed' in the draft" in capsys.readouterr().err
    assert main(["train-draft", "-m", str(TARGET), *args, "--train-device", "cuda:99"]) == 1
    assert "--train-device cuda:99 cannot be used" in capsys.readouterr().err
    assert not (tmp_path / "out.gguf.work").exists()
    lines = [{"prompt": "Once"}, {"messages": [{"content": "without a role"}]}, {"prompt": "upon"}]
    (tmp_path / "roles.jsonl").write_text("\n".join(map(json.dumps, lines)), "utf-8")
    args[1] = str(tmp_path / "roles.jsonl")
    assert main(["train-draft", "-m", str(TARGET), *args]) == 1
    assert "line 2 of" in capsys.readouterr().err


def _renamed(path: Path, i: int) -> list[str]:
    tokens = list(header_of(path)["tokenizer.ggml.tokens"][1])
    tokens[i] = "renamed"
    return tokens


@pytest.mark.parametrize("size", ["8b", "70b"])
def test_the_plans_of_the_documentation_are_the_tools(size: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = (Path(__file__).parents[1] / "docs" / "training.md").read_text("utf-8")
    command = next(line for line in text.splitlines() if line.startswith("duo train-head --like 70b"))
    args = command.replace("70b", size).split()[1:]
    assert main([*args, "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    row = next(line for line in text.splitlines() if line.lower().startswith(f"| {size} |"))
    _, _, parameters, disk, teach, learn, *_ = row.split("|")
    for cell, value in ((parameters, plan["n_parameters"] / 1e6), (disk, plan["disk"] / 1e9),
                        (teach, plan["memory_teach"] / 1e9), (learn, plan["memory_train"] / 1e9)):  # fmt: skip
        assert float(cell.split()[0]) == pytest.approx(value, rel=0.02)


def test_a_plan_for_a_draft_that_goes_on_has_its_sizes(capsys: pytest.CaptureFixture[str]) -> None:
    speed = ("--tflops", "1", "--bandwidth", "10", "--json")
    assert main(["train-draft", "-m", str(TARGET), "--plan", "--from", str(DRAFT), *speed]) == 0
    plan = json.loads(capsys.readouterr().out)
    made = sum(p.numel() for p in draft.read_llama(ModelFile(DRAFT)).parameters())
    assert plan["n_parameters"] == pytest.approx(made, rel=0.01)


def test_a_full_disk_does_not_lose_the_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A checkpoint that cannot be written leaves the last one as it was, and the draft is written all the same."""
    few = ("--n-layer", "1", "--type", "f32", "--epochs", "0.5")
    assert train("draft", tmp_path, *few) == 0
    out, checkpoint = tmp_path / "out.gguf", tmp_path / "out.gguf.work" / "checkpoint.pt"
    before = checkpoint.read_bytes()
    assert len(before) > 1.5 * out.stat().st_size
    capsys.readouterr()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(
        resource.RLIMIT_FSIZE, (len(before) * 3 // 4, limits[1])
    )  # the draft fits, a checkpoint does not
    try:
        assert train("draft", tmp_path, *few[:-1], "1") == 0
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "checkpoint.pt: could not be written" in capsys.readouterr().err
    card = read_card(out)
    assert card is not None and card["training"]["steps"] > 0
    assert checkpoint.read_bytes() == before
    assert list(checkpoint.parent.glob(".duo-*")) == []
