"""What values of llama.cpp's options mean in duo, and which of them are possible."""

from __future__ import annotations

import re
from collections.abc import Callable
from urllib.parse import unquote

from duo.cli.on_off import OFF, ON
from duo.options.check import WrongValueError, check_value
from duo.options.generate import GenerateOptions

# What a value means: arguments of duo, or values of parameters that are not given. Raises ValueError.
Meaning = Callable[[str], list[str] | dict[str, str]]


def only(*values: str, words: str = "") -> Meaning:
    """These values, which the words describe."""

    def check(value: str) -> list[str]:
        if value.lower() not in values:
            raise ValueError(f"it has to be {words}" if words else f"only {' or '.join(values)} is possible in duo")
        return []

    return check


def number(least: float = -float("inf"), most: float = float("inf"), words: str = "a number") -> Meaning:
    """Any number in the range, which the words describe."""
    return _in_range(float, least, most, words)


def integer(least: float = -float("inf"), most: float = float("inf"), words: str = "a whole number") -> Meaning:
    return _in_range(int, least, most, words)


def _in_range(kind: type[float], least: float, most: float, words: str) -> Meaning:
    def check(value: str) -> list[str]:
        try:
            if least <= kind(value) <= most:
                return []
        except ValueError:
            pass
        raise ValueError(f"it has to be {words}")

    return check


def fit(value: str) -> dict[str, str]:
    if value not in (*ON, *OFF):
        raise ValueError("it has to be on or off")
    return dict.fromkeys(("n_gpu_layers", "n_gpu_layers_draft"), "auto" if value in ON else "all")


_OF_HUB = re.compile(r"https?://(?:huggingface\.co|hf\.co)/([^/?#]+/[^/?#]+)/(?:resolve|blob)/main/([^?#]+)(?:\?.*)?")


def model_url(value: str) -> list[str]:
    if "://" not in value:
        raise ValueError("it has to be a URL")
    match = _OF_HUB.fullmatch(value)
    return ["-m", value] if match is None else ["-hf", match[1], "-hff", unquote(match[2])]


def mmproj_url(value: str) -> list[str]:
    if "://" not in value:
        raise ValueError("it has to be a URL")
    return ["--mmproj", value]


def rope_scale(value: str) -> list[str]:
    try:
        factor = float(value)
    except ValueError:
        factor = 0.0
    if not 0.0 < factor < float("inf"):
        raise ValueError("it has to be a number above 0")
    return ["--rope-freq-scale", repr(1.0 / factor)]


def any_text(_value: str) -> list[str]:
    """Any text."""
    return []


def samplers(value: str) -> list[str]:
    try:
        check_value(GenerateOptions, "samplers", value)
    except WrongValueError as e:
        raise ValueError(e.why) from None
    return ["--samplers", value]


def verbosity(value: str) -> list[str]:
    if not re.fullmatch(r"-?\d+", value):
        raise ValueError("it has to be a whole number")
    return ["-v"] if int(value) >= 4 else []  # llama.cpp's 4 and 5: debugging
