"""A `Duo` with switches that only tests and benchmarks need."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from duo import _core
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
        self._delay = delay
        super().__init__(model, draft, **options)
        self._always = ExitStack()
        if always:
            self._always.enter_context(self.session.speculating_always())

    def _before_loading(self, placed: _core.EngineOptions) -> bool:
        if not any(self._delay):
            return super()._before_loading(placed)
        _core.make_late(placed, *self._delay)
        return False
