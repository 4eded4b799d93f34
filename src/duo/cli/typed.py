"""A command line as arguments for another process, and keys of a file as options."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import click
from click.core import ParameterSource

from duo.cli import show
from duo.cli.llama_cpp_line import taken_by
from duo.cli.llama_cpp_taken import TAKEN
from duo.cli.on_off import OFF, ON, OPPOSITE, VARIABLE
from duo.errors import BadValueError


def typed_args(ctx: click.Context, without: Collection[str]) -> list[str]:
    """The options that were typed, but for those of these names. What only llama.cpp has is there as what it meant."""
    out: list[str] = []
    for p in ctx.command.params:
        if not isinstance(p, click.Option) or p.name is None or p.name in without:
            continue
        # DEFAULT_MAP: the value came from an option of llama.cpp that the user typed.
        if ctx.get_parameter_source(p.name) in (ParameterSource.COMMANDLINE, ParameterSource.DEFAULT_MAP):
            out += _as_args(p, ctx.params[p.name])
    return out


def _as_args(p: click.Option, value: Any) -> list[str]:
    if p.is_flag:
        return [p.opts[0]] if value or not p.secondary_opts else [p.secondary_opts[0]]
    several = value if p.multiple and isinstance(value, tuple) else [value]
    return [x for one in several for x in (p.opts[-1], *map(_text, one if p.nargs > 1 else [one]))]


def _text(value: Any) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else "auto" if value is None else str(value)


def spelled_by(command: click.Command, name: str, without: Collection[str] = ()) -> Callable[[str, str], list[str]]:
    """Arguments of a command for a key and its value, as llama.cpp's preset files have them: an option's name without
    hyphens, or its variable of the environment. name: the command's. without: names of options that give none."""
    options = [p for p in command.params if isinstance(p, click.Option) and p.expose_value]
    by_name = {s: p for p in options for s in (*p.opts, *p.secondary_opts)}
    by_variable = {v: p for p in options for v in ([p.envvar] if isinstance(p.envvar, str) else p.envvar or ())}
    unused = {t.env for t in TAKEN if t.env and t.means is None}

    def positive(key: str, value: str) -> str:
        """For LLAMA_ARG_NO_X: LLAMA_ARG_X, with the same value. That is what llama.cpp's presets mean by it, unlike its
        environment (common/preset.cpp: parse_bool_arg reverses values of options' names only)."""
        variable = key.replace(OPPOSITE, VARIABLE, 1)
        p = by_variable.get(variable)
        if key in by_variable or variable == key or not (variable in unused or (p and p.secondary_opts)):
            return key
        if p is not None:
            off = p.secondary_opts[-1].lstrip("-")
            show.warn(
                f"{key} = {value} in a preset means {variable} = {value}, as in llama.cpp; to switch it off write "
                f"{off} = true"
            )
        return variable

    def spelled(key: str, value: str) -> list[str]:
        key = positive(key, value)
        click_option = by_variable.get(key)
        if click_option is not None:
            option = click_option.secondary_opts[-1] if key.startswith(OPPOSITE) else click_option.opts[-1]
            return [] if click_option.name in without else _arguments(click_option, option, value)
        names = [t.names[-1] for t in TAKEN if t.env == key]
        for option in names or (f"--{key.replace('_', '-')}", f"-{key}"):
            if (p := by_name.get(option)) is not None:
                return [] if p.name in without else _arguments(p, option, value)
            if (taken_option := taken_by(option, name, by_name)) is not None:
                if taken_option.means is not None:
                    return [option, value]
                return [option] if value.lower() not in OFF else []
        raise BadValueError(f"{key} is no option of duo {name}; see duo {name} --help-all")

    return spelled


def _arguments(p: click.Option, option: str, value: str) -> list[str]:
    if not p.is_flag:
        return [p.opts[-1] if p.multiple else option, value]  # a router knows it by this name
    if value.lower() not in (*ON, *OFF):
        raise BadValueError(f"{option.lstrip('-')} is {value!r}; write true or false")
    is_on = (value.lower() in ON) == (option in p.opts)
    return [p.opts[0]] if is_on else p.secondary_opts[:1]
