"""on, off and auto, in all of llama.cpp's spellings (common/arg.cpp: is_truthy, is_falsey, is_autoy)."""

from __future__ import annotations

from typing import Any

import click

ON = ("on", "enabled", "true", "1")
OFF = ("off", "disabled", "false", "0")
AUTO = ("auto", "-1")


class OnOffAuto(click.ParamType):  # type: ignore[type-arg]
    """True, False, or None for auto."""

    name = "on|off|auto"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> bool | None:
        if not isinstance(value, str):
            return bool(value)
        if value in (*ON, *OFF):
            return value in ON
        if value in AUTO:
            return None
        self.fail(f"{value!r} is not on, off or auto", param, ctx)


class Flag(click.Option):
    """A flag with its opposite, whose variable of the environment has llama.cpp's spellings."""

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        value = super().resolve_envvar_value(ctx)
        return "1" if value in ON else "0" if value in OFF else value
