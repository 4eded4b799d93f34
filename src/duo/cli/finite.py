"""Numbers on a command line: click takes nan and inf, which no comparison with a limit refuses."""

from __future__ import annotations

from math import isfinite
from typing import Any

import click


class Finite(click.FloatRange):
    """A number in a range, and neither nan nor inf."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not isfinite(number):
            self.fail(f"{value} is no finite number; give another one", param, ctx)
        return number
