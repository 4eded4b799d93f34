"""The folder of a training: full disks, what a killed process leaves, more tokens than an earlier run had, signals."""

from __future__ import annotations

import errno
import os
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from duo import DoesNotFitError, DuoError
from duo.cli.main import main
from duo.models.demo import demo_pair
from duo.train.lessons import Folder
from duo.train.recipe import DataRecipe
from duo.train.teacher import Group, Teacher

TARGET, _ = demo_pair()
LESSONS = ("tokens", "starts", "n_given", "top_ids", "top_log_p")


def files(path: Path) -> list[str]:
    return sorted(str(f.relative_to(path)) for f in path.rglob("*") if f.is_file())


@contextmanager
def limited(what: int, n: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(what)
    resource.setrlimit(what, (n, hard))
    try:
        yield
    finally:
        resource.setrlimit(what, (soft, hard))


@pytest.mark.parametrize(
    "put",
    [
        lambda folder: folder.put_lessons("learn", 0, {"tokens": np.zeros(1 << 18, np.int32)}),
        lambda folder: folder.put_texts("learn", 0, [([0] * (1 << 18), 1)]),
    ],
)
def test_a_full_disk_is_said_and_leaves_no_parts(tmp_path: Path, put: Callable[[Folder], None]) -> None:
    folder = Folder(tmp_path / "work", {"seed": 1})
    before = files(tmp_path)
    full = rf"{tmp_path / 'work'}: the disk is full, .*; free some space and run the same command again"
    with limited(resource.RLIMIT_FSIZE, 1 << 18), pytest.raises(DoesNotFitError, match=full):
        put(folder)
    assert files(tmp_path) == before and not list((tmp_path / "work").glob("*/*"))
    put(folder)


def test_files_that_cannot_be_opened_are_not_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Folder(tmp_path / "work", {"seed": 1})
    folder.put_texts("learn", 0, [([1, 2, 3], 2)])
    folder.put_lessons("learn", 0, {name: np.zeros(3, np.int32) for name in LESSONS})
    for number, what in ((errno.EMFILE, r"raise this limit \(ulimit -n\)"), (errno.EIO, "mend that")):

        def no(*_: Any, number: int = number, **__: Any) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(np, "load", no)
        for read in (folder.lessons, folder.texts, folder.n_texts, folder.n_lessons):
            with pytest.raises(DuoError, match=rf"cannot be read \({os.strerror(number)}\); {what} and run the same"):
                read("learn", 0)


def test_what_a_killed_process_left_is_removed_and_what_a_living_one_writes_is_not(tmp_path: Path) -> None:
    living = Folder(tmp_path, {"seed": 1})
    living.put_texts("learn", 0, [([1, 2, 3], 2)])
    whole = files(tmp_path)
    parts = [".duo-a/checkpoint.pt", "lessons/.part-b/learn-00000/tokens.npy", "texts/.duo-c/learn-00001.npz"]
    of_others = ".duo-d/draft.gguf"
    for name in (*parts, of_others):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    also = Folder(tmp_path, {"seed": 1})
    assert files(tmp_path) == sorted([*whole, *parts, of_others])
    del living, also
    Folder(tmp_path, {"seed": 1})
    assert files(tmp_path) == sorted([*whole, of_others])


class ScriptedTarget:
    """Writes a text's seed again and again."""

    def __init__(self, _: Path, *, n_parallel: int, **__: Any) -> None:
        self.n_parallel = n_parallel

    def __enter__(self) -> ScriptedTarget:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def close(self) -> None:
        pass

    def tokenize(self, text: str, **_: Any) -> list[int]:
        return [*text.encode()]

    def generate(self, _: list[int], *, max_tokens: int, seed: int, **__: Any) -> SimpleNamespace:
        return SimpleNamespace(tokens=[seed] * max_tokens)


def test_more_tokens_complete_the_last_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The texts that are there stay, the lessons of the group are read anew, and progress begins where it was."""
    recipe = DataRecipe(
        length=16, written=0.5, prompt_length=4, temperatures=(0.0,), top=4, seed=3, layers=(), n_embd=320
    )
    folder = Folder(tmp_path / "work", {"seed": 3})
    data = tmp_path / "data.txt"
    data.write_text("Once upon a time there was a little girl who lived in a house. " * 20, "utf-8")
    told: list[tuple[int, int]] = []

    def read(self: Teacher, groups: list[Group]) -> None:
        for kind, group, _ in groups:
            texts = folder.texts(kind, group)
            folder.put_lessons(kind, group, {name: getattr(texts, name) for name in LESSONS[:3]})

    monkeypatch.setattr("duo.train.teacher.Duo", ScriptedTarget)
    monkeypatch.setattr(Teacher, "_read", read)

    def teach(n_tokens: int) -> list[list[int]]:
        progress = lambda _, done, total: told.append((done, total))  # noqa: E731
        Teacher(TARGET, recipe, folder, n_tokens, {"n_parallel": 2}, progress).teach([data])
        texts = folder.texts("learn", 0)
        return [texts.of(i).tolist() for i in range(len(texts))]

    few = teach(3 * 16)
    assert len(few) == 3 and told[-1] == (11 * 16, 11 * 16)  # eight texts check the training
    told.clear()
    more = teach(7 * 16)
    assert more[:3] == few and len(more) == 7 and [len(text) for text in more] == [16] * 7
    assert folder.n_lessons("learn", 0) == 7 and folder.n_lessons("check", 0) == 8
    assert told[0][0] > 11 * 16 and told == sorted(told) and told[-1] == (15 * 16, 15 * 16)
    told.clear()
    assert teach(7 * 16) == more and teach(2 * 16) == more and not told


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_kill_and_a_closed_terminal_end_it_as_ctrl_c(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    number = getattr(signal, name)
    monkeypatch.setattr("duo.train.draft.train_draft", lambda _: signal.raise_signal(number))
    default = signal.signal(number, signal.SIG_DFL)  # nohup ignores it
    try:
        assert main(["train-draft", "-m", str(TARGET), "--data", "x", "-o", str(tmp_path / "draft.gguf")]) == 130
    finally:
        signal.signal(number, default)
