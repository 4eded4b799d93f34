"""The training loop: AdamW, a falling learning rate, validation, and a checkpoint from which it goes on."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from duo.errors import BadValueError, DuoError
from duo.support.atomic import replacing
from duo.support.wording import one_line
from duo.train.acceptance import Acceptance
from duo.train.dataset import Batch, Item, Lessons

WARM_UP = 50  # steps, or a twentieth of all if that is less
LR_END = 0.05  # of the highest learning rate
N_VALIDATIONS = 20
CLIP = 0.5

Report = Callable[[float, float, Acceptance], None]  # share done, loss, acceptance
Progress = Callable[[str, float, float], None]


class Task(Protocol):
    """What is trained, and what is asked of it."""

    model: nn.Module
    n_positions: int

    def loss(self, batch: Batch) -> Tensor: ...
    def acceptance(self, batch: Batch) -> Acceptance: ...


@dataclass(frozen=True)
class TrainerSettings:
    lr: float
    epochs: float
    minutes: float | None
    batch_tokens: int
    seed: int
    device: torch.device
    bf16: bool


@dataclass
class TrainerState:
    """Where the training is."""

    step: int = 0
    seconds: float = 0.0
    n_tokens: int = 0
    epoch: int = 0
    in_epoch: int = 0  # batches of this epoch that are done
    best: Acceptance | None = None
    best_model: dict[str, Tensor] = field(default_factory=dict)
    history: list[tuple[float, float, float]] = field(default_factory=list)  # seconds, loss, tokens per pass


class Trainer:
    """One training. `run` begins or goes on; the model has the best weights behind it."""

    checkpoint_s = 60.0  # between two of them

    def __init__(
        self,
        task: Task,
        learn: Lessons,
        check: Lessons,
        settings: TrainerSettings,
        checkpoint: Path,
        about: dict[str, Any],
        warn: Callable[[str], None],
    ) -> None:
        """about: what a checkpoint must have been made for; another one is refused. warn: told what does not end it."""
        self._task, self._learn, self._check, self._settings = task, learn, check, settings
        self._warn = warn
        self._checkpoint, self._about = checkpoint, about
        task.model.to(settings.device)
        learned = [p for p in task.model.parameters() if p.requires_grad]
        # Vectors (norms) do not decay.
        groups = [{"params": [p for p in learned if p.ndim > 1], "weight_decay": 0.01},
                  {"params": [p for p in learned if p.ndim < 2], "weight_decay": 0.0}]  # fmt: skip
        self._optimizer = torch.optim.AdamW(groups, lr=settings.lr, betas=(0.9, 0.95))
        self.state = TrainerState()
        self._loss = math.nan  # running mean
        self._diverged = False
        self._validated = -1  # step of the last validation

    def run(self, progress: Progress, report: Report) -> TrainerState:
        """Trains to the end of the settings. Raises DuoError: the checkpoint is another training's, or damaged."""
        self._resume()
        s, state = self._settings, self.state
        n_all = max(1.0, s.epochs * self._learn.n_tokens)
        since, saved = time.monotonic() - state.seconds, time.monotonic()
        validated = self._share(n_all)
        try:
            for items in self._batches():
                if self._share(n_all) >= 1.0:
                    break
                self._step(items, self._share(n_all))
                state.seconds = time.monotonic() - since
                share = min(1.0, self._share(n_all))
                progress(f"training, loss {self._loss:.3f}", 100 * share, 100)
                if share - validated >= 1 / N_VALIDATIONS:
                    validated = share
                    self._validate(share, report)
                if time.monotonic() - saved > self.checkpoint_s:
                    self._try_to_save()
                    saved = time.monotonic()
            if self._validated != state.step:
                self._validate(1.0, report)
        finally:
            self._try_to_save()  # the weights are here, whatever the disk says
        self._task.model.load_state_dict(state.best_model)
        return state

    def _share(self, n_all: float) -> float:
        """How much of the training is done; the limit that is nearer counts."""
        limit = self._settings.minutes
        by_time = 0.0 if limit is None else self.state.seconds / (60 * limit)
        return max(self.state.n_tokens / n_all, by_time)

    def _batches(self) -> Iterator[list[Item]]:
        s = self._settings
        while True:
            for i, items in enumerate(self._learn.epoch(s.seed, self.state.epoch, s.batch_tokens)):
                if i >= self.state.in_epoch:
                    yield items
                    self.state.in_epoch = i + 1
            self.state.epoch, self.state.in_epoch = self.state.epoch + 1, 0

    def _lr(self, share: float) -> float:
        """Linear to the highest, then half a cosine."""
        n_warm = WARM_UP if share <= 0 else min(WARM_UP, self.state.step / share / 20)
        warm = min(1.0, (self.state.step + 1) / max(1.0, n_warm))
        fall = LR_END + (1 - LR_END) * 0.5 * (1 + math.cos(math.pi * min(1.0, share)))
        return self._settings.lr * min(warm, fall)

    def _step(self, items: list[Item], share: float) -> None:
        model = self._task.model.train()
        for group in self._optimizer.param_groups:
            group["lr"] = self._lr(share)
        batch = self._learn.batch(items, self._settings.device)
        with self._products():
            loss = self._task.loss(batch)
        value = float(loss.detach())
        self._check_finite(value)
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self._check_finite(float(nn.utils.clip_grad_norm_(model.parameters(), CLIP)))
        self._optimizer.step()
        self._loss = value if math.isnan(self._loss) else 0.95 * self._loss + 0.05 * value
        self.state.step += 1
        self.state.n_tokens += int(batch.lengths.sum())

    def _check_finite(self, value: float) -> None:
        """value: the loss, or the length of its gradient."""
        if not math.isfinite(value):
            self._diverged = True
            raise DuoError("the loss is NaN or infinite; run again with a smaller --lr")

    def _products(self) -> torch.autocast:
        return torch.autocast(self._settings.device.type, torch.bfloat16, enabled=self._settings.bf16)

    @torch.no_grad()
    def _validate(self, share: float, report: Report) -> None:
        acceptance = self._acceptance()
        state = self.state
        self._validated = state.step
        state.history.append((round(state.seconds, 1), round(self._loss, 4), round(acceptance.mean_length, 4)))
        if state.best is None or acceptance.mean_length >= state.best.mean_length:
            state.best = acceptance
            state.best_model = {name: t.detach().cpu().clone() for name, t in self._task.model.state_dict().items()}
        report(share, self._loss, acceptance)

    @torch.no_grad()
    def _acceptance(self) -> Acceptance:
        self._task.model.eval()
        acceptance = Acceptance.none(self._task.n_positions)
        for items in self._check.epoch(self._settings.seed, 0, self._settings.batch_tokens):
            with self._products():
                acceptance += self._task.acceptance(self._check.batch(items, self._settings.device))
        return acceptance

    # ---- checkpoint

    def _try_to_save(self) -> None:
        """If it cannot be written, the last one stays, and the training goes on."""
        if self._diverged:  # the last one is better
            return
        try:
            self._save()
        except DuoError as e:
            self._warn(str(e))

    def _save(self) -> None:
        state = self.state
        saved = {
            "about": self._about,
            "model": self._task.model.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "state": {**vars(state), "best": None if state.best is None else (state.best.n, state.best.n_right)},
            "loss": self._loss,
            "n_check": len(self._check.items),
        }
        try:
            with replacing(self._checkpoint) as part:
                torch.save(saved, part)
        except (OSError, RuntimeError) as e:
            raise DuoError(f"{self._checkpoint}: could not be written ({one_line(e, 120)}); free some space") from None

    def _resume(self) -> None:
        if not self._checkpoint.exists():
            return
        try:
            saved = torch.load(self._checkpoint, map_location=self._settings.device, weights_only=True)
            if saved["about"] != self._about:
                raise BadValueError(
                    f"{self._checkpoint} was made for another network; give the same sizes, or delete it to begin anew"
                )
            if not all(w.isfinite().all() for w in saved["model"].values()):
                raise ValueError("its weights are not finite")
            self._task.model.load_state_dict(saved["model"])
            self._optimizer.load_state_dict(saved["optimizer"])
            best = saved["state"].pop("best")
            self.state = TrainerState(
                **saved["state"], best=None if best is None else Acceptance(best[0], tuple(best[1]))
            )
            self._loss = saved["loss"]
        except BadValueError:
            raise
        except Exception as e:  # whatever torch raises on a damaged file
            if isinstance(e, OSError) and e.errno is not None:
                raise DuoError(
                    f"{self._checkpoint} cannot be read ({e.strerror}); mend that and run the same command again"
                ) from None
            raise DuoError(f"{self._checkpoint} is damaged ({one_line(e, 120)}); delete it to begin anew") from None
        if self.state.best is not None and saved.get("n_check") != len(self._check.items):
            # With more tokens more texts check the training, so what was measured before does not compare.
            self._task.model.load_state_dict(self.state.best_model)
            self.state.best = self._acceptance()
            self._task.model.load_state_dict(saved["model"])
