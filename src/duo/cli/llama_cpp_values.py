"""What values of llama.cpp's options mean in duo, and which of them are possible."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

from duo.cli.on_off import OFF, ON
from duo.options.check import WrongValueError, check_value
from duo.options.generate import GenerateOptions

INFINITE = float("inf")
# Bounds of options for which llama.cpp takes any number: what is beyond is as the bound (common/arg.cpp and
# src/llama-sampler.cpp). min_p above 1 leaves one token there, also of several that are equally probable.
_BOUNDS = {
    "temperature": (0.0, INFINITE),
    "top_k": (0.0, INFINITE),
    "top_p": (0.0, 1.0),
    "min_p": (0.0, 1.0),
    "typical_p": (0.0, 1.0),
    "top_n_sigma": (-1.0, INFINITE),
    "xtc_probability": (0.0, 1.0),
    "xtc_threshold": (0.0, 1.0),
    "dynatemp_range": (0.0, INFINITE),
}


def in_range(name: str, value: Any) -> Any:
    """What llama.cpp's command line makes of the value of an option of duo. It is checked elsewhere."""
    if name == "n_parallel" and value == "-1":
        return "auto"
    if name not in _BOUNDS or not isinstance(value, str):
        return value
    try:
        number = float(value)
    except ValueError:
        return value
    least, most = _BOUNDS[name]
    return f"{least:g}" if number < least else f"{most:g}" if number > most else value


# What a value means: arguments of duo, or values of parameters that are not given. Raises ValueError.
Meaning = Callable[[str], list[str] | dict[str, str]]


def only(*values: str, words: str = "") -> Meaning:
    """These values, which the words describe."""

    def check(value: str) -> list[str]:
        if value.lower() not in values:
            raise ValueError(f"it has to be {words}" if words else f"only {' or '.join(values)} is possible in duo")
        return []

    return check


def number(least: float = -INFINITE, most: float = INFINITE, words: str = "a number") -> Meaning:
    """Any number in the range, which the words describe."""
    return _in_range(float, least, most, words)


def integer(least: float = -INFINITE, most: float = INFINITE, words: str = "a whole number") -> Meaning:
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
    if not 0.0 < factor < INFINITE:
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
