"""A `Duo` with switches that only tests and benchmarks need."""

from __future__ import annotations

from typing import Any

from duo.model import Duo
from duo.models.paths import PathLike


class SwitchedDuo(Duo):
    """always: speculate whether it pays or not. delay: each decode of a model in this process is up to so many
    microseconds late (csrc/synthetic/delayed_model.h), by a random number with this seed; then nothing that earlier
    runs have learned of the pair is used. Everything else as `Duo`."""

    def __init__(
        self,
        model: PathLike | None = None,
        draft: PathLike | None = None,
        *,
        always: bool = False,
        delay: tuple[int, int] = (0, 0),
        **options: Any,
    ) -> None:
        self._always, self._delay = always, delay
        super().__init__(model, draft, **options)
