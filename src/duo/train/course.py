"""What `train-head` and `train-draft` have in common: the teacher's folder, the training, the card."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import duo
from duo.errors import BadValueError
from duo.options.train import DraftOptions, TrainOptions
from duo.placement.model_hash import file_hash
from duo.support.wording import gigabytes
from duo.train.documents import data_hash
from duo.train.lessons import Folder
from duo.train.pytorch import device_of, has_bf16, need_torch
from duo.train.recipe import DataRecipe
from duo.train.sizes import TargetShape

Say = Callable[[str], None]
Progress = Callable[[str, float, float], None]  # what, done, total


@dataclass(frozen=True)
class TrainingRequest:
    """One call: the files, complete options, keywords of `Duo` that place the target, and who hears of progress."""

    target: Path
    data: Sequence[Path]
    out: Path
    options: TrainOptions
    engine: dict[str, Any]
    say: Say
    progress: Progress


@dataclass(frozen=True)
class Trained:
    """The file that training wrote."""

    path: Path
    n_bytes: int
    card: dict[str, Any]


def recipe_of(t: TargetShape, o: TrainOptions, layers: tuple[int, ...]) -> DataRecipe:
    """Raises BadValueError: a text is longer than the target's context."""
    length = o["length"] or t.length
    if length > t.n_ctx:
        raise BadValueError(f"--length is {length} and {t.name} was trained with a context of {t.n_ctx}; give less")
    if o["prompt_length"] >= length:
        raise BadValueError(
            f"--prompt-length is {o['prompt_length']}, not below the length of a text, {length}; give less"
        )
    return DataRecipe(
        length=length,
        written=o["written"],
        prompt_length=o["prompt_length"],
        temperatures=tuple(o["temperatures"]),
        top=min(o["top"], t.n_vocab),
        seed=o["seed"],
        layers=layers,
        n_embd=t.n_embd,
    )


class Course:
    """One training, from the data to the best weights."""

    def __init__(self, request: TrainingRequest, shape: TargetShape, layers: tuple[int, ...]) -> None:
        """Raises DuoError: no PyTorch, no such device, an output that cannot be written, a folder of something else."""
        need_torch()
        self.request = request
        o = request.options
        self._device = device_of(o["train_device"])  # before the target teaches for hours
        out = request.out
        if not os.path.isdir(out.parent) or os.path.isdir(out):
            raise BadValueError(
                f"{out} is a folder, or its folder does not exist; name a file in an existing folder with -o"
            )
        start = cast("DraftOptions", o).get("start")
        for other in (request.target, *request.data, *([Path(start)] if start else [])):
            if os.path.exists(out) and os.path.exists(other) and out.samefile(other):
                raise BadValueError(f"{out}: is read by this command; write to another file with -o")
        self.recipe = recipe_of(shape, o, layers)
        self.made_of = {
            "target": f"{request.target.name} {file_hash(request.target)}",
            "data": data_hash(request.data),
            **self.recipe.words(),
        }
        work = Path(o["work"] or f"{out}.work")
        n_bytes = self.recipe.total_bytes(o["tokens"])
        request.say(f"the teacher's data: {o['tokens']:,} tokens, {gigabytes(n_bytes)} in {work}")
        self.folder = Folder(work, self.made_of)

    def teach(self) -> None:
        """Lets the target make what the folder lacks. Raises DuoError."""
        from duo.train.teacher import Teacher

        a = self.request
        teacher = Teacher(a.target, self.recipe, self.folder, a.options["tokens"], a.engine, a.progress)
        seconds = teacher.teach(a.data)
        if seconds > 1:
            a.say(f"the target has taught for {seconds / 60:.1f} minutes")

    def train(self, task: Any, about: dict[str, Any]) -> dict[str, Any]:
        """Trains the task's model and leaves the best weights in it. Returns the card's part. Raises DuoError.

        about: the network, as a checkpoint remembers it."""
        from duo.train.acceptance import Acceptance
        from duo.train.dataset import Lessons
        from duo.train.trainer import Trainer, TrainerSettings

        a, o = self.request, self.request.options
        device = self._device
        settings = TrainerSettings(
            lr=o["lr"] or min(2e-3, 0.192 / about["n_embd"]),
            epochs=o["epochs"],
            minutes=o["minutes"],
            batch_tokens=o["batch_tokens"],
            seed=o["seed"],
            device=device,
            bf16=o["precision"] == "bf16" or (o["precision"] == "auto" and has_bf16(device)),
        )

        def report(share: float, loss: float, acceptance: Acceptance) -> None:
            a.say(f"{100 * share:3.0f} %: loss {loss:.3f}, {acceptance.words()}")

        learn, check = Lessons(self.folder, "learn"), Lessons(self.folder, "check")
        trainer = Trainer(task, learn, check, settings, self.folder.path / "checkpoint.pt", about, a.say)
        state = trainer.run(a.progress, report)
        assert state.best is not None
        return {
            "network": about,
            "training": {
                "tokens": state.n_tokens,
                "steps": state.step,
                "minutes": round(state.seconds / 60, 2),
                "lr": settings.lr,
                "batch_tokens": settings.batch_tokens,
                "device": str(device),
                "products": "bf16" if settings.bf16 else "f32",
                "history": [list(h) for h in state.history],  # seconds, loss, tokens per pass
            },
            "acceptance": {
                "texts": "held-out data that the target continued greedily",
                "chains": state.best.n,
                "by_position": [round(x, 4) for x in state.best.by_position],
                "tokens_per_pass": round(state.best.mean_length, 3),
            },
        }

    def card(self, kind: str, trained: dict[str, Any]) -> dict[str, Any]:
        """How the file was made."""
        data = {"files": [f.name for f in self.request.data], "hash": self.made_of["data"]}
        recipe = {**asdict(self.recipe), "tokens": self.request.options["tokens"]}
        return {
            "made_by": f"duo {duo.__version__}, {kind}",
            "target": self.made_of["target"],
            "data": data,
            "recipe": recipe,
            **trained,
        }
