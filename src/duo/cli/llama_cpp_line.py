"""A command line as people type it for llama.cpp's programs, in duo's own options."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from dataclasses import dataclass
from itertools import islice

from duo.cli.llama_cpp_options import WORK_OF_OTHERS
from duo.cli.llama_cpp_taken import OF_NAME, TAKEN, TakenOption
from duo.cli.on_off import OFF, VARIABLE


@dataclass
class Meant:
    """What a command line means in duo."""

    args: list[str]  # in duo's own options
    defaults: dict[str, str]  # by parameter, for those that the user does not type
    notes: dict[str, str]  # by llama.cpp's option: what duo does
    warnings: dict[str, str]  # the same, where duo does less than llama.cpp


def meaning_of(args: list[str], command: str, own_options: Collection[str], n_values: Callable[[str], int]) -> Meant:
    """Translates the options that duo takes from llama.cpp. As there, --a_b is --a-b, and the last of several with one
    meaning counts.

    own_options: those of the command. n_values: how many arguments after this one belong to it; may raise. Raises
    ValueError: an option and its fault.
    """
    parts: list[list[str]] = []
    at: dict[TakenOption, list[str]] = {}
    defaults: dict[TakenOption, dict[str, str]] = {}
    notes: dict[bool, dict[str, str]] = {False: {}, True: {}}
    arguments = iter(args)
    for typed in arguments:
        if typed == "--":
            parts.append([typed, *arguments])
            break
        arg = _with_hyphens(typed, own_options)
        name, is_joined, value = arg.partition("=") if arg.startswith("--") else (arg, "", "")
        option = taken_by(name, command, own_options)
        if option is None:
            parts.append([arg, *islice(arguments, n_values(arg))])
            continue
        value = value if is_joined or option.means is None else next(arguments, "")
        meaning = _meaning(option, name, value, joined=bool(is_joined))
        at.get(option, []).clear()
        at[option] = [x for x in meaning if x != "-v" or x in own_options] if isinstance(meaning, list) else []
        defaults[option] = meaning if isinstance(meaning, dict) else {}
        parts.append(at[option])
        notes[option.loud][name] = option.why
    merged = {k: v for values in defaults.values() for k, v in values.items()}
    return Meant([x for part in parts for x in part], merged, notes[False], notes[True])


def _meaning(option: TakenOption, name: str, value: str, *, joined: bool) -> list[str] | dict[str, str]:
    if option.means is None:
        if joined:
            raise ValueError(f"{name} takes no value")
        return list(option.instead)
    if not value:
        raise ValueError(f"{name} needs a value")
    try:
        return option.means(value)
    except ValueError as e:
        raise ValueError(f"llama.cpp's {name} {value}: {e}; change the value or leave it out") from None


def _with_hyphens(arg: str, own_options: Collection[str]) -> str:
    name, is_joined, value = arg.partition("=")
    other = name.replace("_", "-")
    return other + is_joined + value if name.startswith("--") and (other in own_options or other in OF_NAME) else arg


def of_environment(args: list[str], command: str, own_options: Collection[str]) -> list[str]:
    """Arguments for the variables of llama.cpp whose options are taken and not given. Raises ValueError: a variable and
    its fault."""
    arguments: list[str] = []
    typed = {_with_hyphens(x, own_options).partition("=")[0] for x in args}
    for t in TAKEN:
        value = os.environ.get(t.env) if t.env else None
        if not value or t.means is None or taken_by(t.names[0], command, own_options) is not t or typed & {*t.names}:
            continue
        try:
            t.means(value)
        except ValueError as e:
            raise ValueError(f"llama.cpp's variable {t.env}={value}: {e}; change the value or unset it") from None
        arguments += [t.names[-1], value]
    return arguments


def without_effect() -> dict[str, str]:
    """Variables of llama.cpp that are set, and whose options duo does not have: option by variable."""
    on = [x for x, value in os.environ.items() if x.startswith(VARIABLE) and value.lower() not in ("", *OFF)]
    options = {x: "--" + x.removeprefix(VARIABLE).lower().replace("_", "-") for x in on}
    return {x: option for x, option in options.items() if option in WORK_OF_OTHERS}


def taken_by(name: str, command: str, own_options: Collection[str]) -> TakenOption | None:
    """The option of llama.cpp with this name, if the command takes it; else None."""
    options = (t for t in OF_NAME.get(name, ()) if not t.commands or command in t.commands)
    return next((t for t in options if not t.needs or t.needs in own_options), None)


def commands_of(name: str) -> list[str]:
    """The commands that alone take it; empty: all, or none."""
    return [c for t in OF_NAME.get(name, ()) for c in t.commands]
