"""Faults of the training itself: many groups and few file descriptors, a loss of NaN, other texts that check it."""

from __future__ import annotations

import errno
import math
import os
import resource
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from needs import need_torch

from duo import DuoError

torch = need_torch()

from duo.train.acceptance import Acceptance  # noqa: E402
from duo.train.dataset import Batch, Lessons  # noqa: E402
from duo.train.lessons import Folder  # noqa: E402
from duo.train.trainer import Trainer, TrainerSettings, TrainerState  # noqa: E402

pytestmark = [pytest.mark.daily, pytest.mark.slow]  # the first optimizer imports much of PyTorch

CPU = torch.device("cpu")


def put(folder: Folder, kind: str, group: int, n_texts: int) -> None:
    """Texts of four tokens each, all of which are the group's number."""
    n = 4 * n_texts
    folder.put_lessons(
        kind,  # type: ignore[arg-type]
        group,
        {
            "tokens": np.full(n, group, np.int32),
            "starts": np.arange(0, n + 1, 4),
            "n_given": np.ones(n_texts, np.int32),
            "features": np.full((n, 3), group, np.uint16),
            "top_ids": np.full((n, 2), group, np.int32),
            "top_log_p": np.zeros((n, 2), np.float16),
        },
    )


def test_groups_may_be_more_than_file_descriptors(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "work", {"seed": 1})
    for group in range(60):
        put(folder, "learn", group, 1)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(f.name) for f in Path("/dev/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 80, hard))
    try:
        lessons = Lessons(folder, "learn")
        assert lessons.counts(60).tolist() == [8] * 60
        (items,) = lessons.epoch(1, 0, 10_000)
        batch = lessons.batch(items, CPU)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    groups = [group for group, _ in items]
    assert sorted(groups) == list(range(60)) and batch.tokens.tolist() == [[group] * 4 for group in groups]
    assert batch.features is not None and batch.features.shape == (60, 4, 3)
    assert batch.n_given.tolist() == [1] * 60 and batch.lengths.tolist() == [4] * 60


class ScriptedTask:
    """One weight, whose loss or gradient may be NaN, and whose guesses are as right as the test says."""

    n_positions = 1

    def __init__(self, fault: str = "", right: bool = True) -> None:
        self.model = torch.nn.Linear(1, 1, bias=False)
        self._fault, self._right = fault, right
        self._n_steps = 0

    def loss(self, batch: Batch) -> Any:
        self._n_steps += 1
        w = self.model.weight.sum()
        if self._n_steps > 2 and self._fault:
            return w * math.nan if self._fault == "loss" else (w * 0).sqrt()
        return w * w

    def acceptance(self, batch: Batch) -> Acceptance:
        n = len(batch.tokens)
        return Acceptance(n, (n if self._right else 0,))


def train(path: Path, task: ScriptedTask, epochs: float, n_check: int = 2) -> TrainerState:
    folder = Folder(path, {"seed": 1})
    put(folder, "learn", 0, 8)
    put(folder, "check", 0, n_check)
    settings = TrainerSettings(lr=0.1, epochs=epochs, minutes=None, batch_tokens=4, seed=1, device=CPU, bf16=False)
    learn, check = Lessons(folder, "learn"), Lessons(folder, "check")
    trainer = Trainer(task, learn, check, settings, path / "checkpoint.pt", {"n_embd": 1}, pytest.fail)
    return trainer.run(lambda *_: None, lambda *_: None)


@pytest.mark.parametrize("fault", ["loss", "gradient"])
def test_a_loss_of_nan_leaves_the_last_checkpoint(tmp_path: Path, fault: str) -> None:
    with pytest.raises(DuoError, match="run again with a smaller --lr"):
        train(tmp_path, ScriptedTask(fault), 1)
    checkpoint = tmp_path / "checkpoint.pt"
    assert not checkpoint.exists()
    assert train(tmp_path, ScriptedTask(), 1).step == 8
    before = checkpoint.read_bytes()
    with pytest.raises(DuoError, match="run again with a smaller --lr"):
        train(tmp_path, ScriptedTask(fault), 2)
    assert checkpoint.read_bytes() == before
    assert train(tmp_path, ScriptedTask(), 2).step == 16


def test_a_checkpoint_of_nan_is_damaged(tmp_path: Path) -> None:
    train(tmp_path, ScriptedTask(), 1)
    saved = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    saved["model"]["weight"].fill_(math.nan)
    torch.save(saved, tmp_path / "checkpoint.pt")
    with pytest.raises(DuoError, match=r"is damaged \(its weights are not finite\); delete it to begin anew"):
        train(tmp_path, ScriptedTask(), 2)


def test_a_checkpoint_that_cannot_be_opened_is_not_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no(*_: Any, **__: Any) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    train(tmp_path, ScriptedTask(), 1)
    monkeypatch.setattr(torch, "load", no)
    with pytest.raises(DuoError, match=r"checkpoint\.pt cannot be read \(Input/output error\)"):
        train(tmp_path, ScriptedTask(), 2)


def test_the_best_weights_are_measured_anew_on_other_texts(tmp_path: Path) -> None:
    best = train(tmp_path, ScriptedTask(), 1).best
    assert best is not None and (best.n, best.mean_length) == (2, 2.0)
    best = train(tmp_path, ScriptedTask(right=False), 1, n_check=2).best
    assert best is not None and (best.n, best.mean_length) == (2, 2.0)
    best = train(tmp_path, ScriptedTask(right=False), 1, n_check=5).best
    assert best is not None and (best.n, best.mean_length) == (5, 1.0)
