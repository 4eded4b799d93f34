"""on, off and auto, in all of llama.cpp's spellings (common/arg.cpp: is_truthy, is_falsey, is_autoy)."""

from __future__ import annotations

import os
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


VARIABLE = "LLAMA_ARG_"  # how the names of llama.cpp's variables begin
OPPOSITE = "LLAMA_ARG_NO_"


class Flag(click.Option):
    """A flag with its opposite, whose variable of the environment is read as llama.cpp does (common/arg.cpp:
    get_value_from_env): LLAMA_ARG_NO_X is the opposite of LLAMA_ARG_X, whatever its value."""

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        for name in [self.envvar] if isinstance(self.envvar, str) else self.envvar or ():
            if name.startswith(OPPOSITE):  # a variable whose only name is LLAMA_ARG_NO_X (NO_HOST)
                if os.environ.get(name) in ON:
                    return "0"
                continue
            if name.startswith(VARIABLE) and name.replace(VARIABLE, OPPOSITE) in os.environ:
                return "0"
            if value := os.environ.get(name):
                return "1" if value in ON else "0" if value in OFF else value
        return None
