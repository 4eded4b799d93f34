"""Defaults of the page's settings (--ui-config), by the names that llama.cpp's page has for them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from duo.errors import BadValueError
from duo.options.check import WrongValueError, check_value
from duo.options.generate import GenerateOptions
from duo.support.text_file import text_of
from duo.support.wording import quoted

THEMES = {"light": "light", "dark": "dark", "system": "auto"}
# Fields of a request, by the page's names for them; each is an option of a text, too.
FIELDS = {
    name: name
    for name in (
        "max_tokens", "temperature", "dynatemp_range", "dynatemp_exponent", "top_k", "top_p", "min_p",
        "xtc_probability", "xtc_threshold", "repeat_last_n", "repeat_penalty", "presence_penalty", "frequency_penalty",
        "dry_multiplier", "dry_base", "dry_allowed_length", "dry_penalty_last_n", "samplers",
    )
} | {"typ_p": "typical_p"}  # fmt: skip


@dataclass(frozen=True)
class PageSettings:
    """What the page does unless its reader chooses otherwise."""

    given: Mapping[str, Any] = field(default_factory=dict)  # as the user wrote it
    theme: str = "auto"
    system: str = ""  # the message before each conversation; empty: none
    fields: Mapping[str, Any] = field(default_factory=dict)  # of each request

    @classmethod
    def of(cls, text: str | None, file: str | None) -> PageSettings:
        """Raises BadValueError: it is no object, or the value of a setting is wrong."""
        if text is not None and file is not None:
            raise BadValueError("both --ui-config and --ui-config-file were given; choose one")
        flag = "--ui-config" if file is None else f"--ui-config-file {file}"
        text = text if file is None else text_of(Path(file), "file of --ui-config-file")
        if text is None:
            return cls()
        try:
            given = json.loads(text)
        except (ValueError, RecursionError):
            given = None
        if not _is_sendable(given):
            raise BadValueError(f"{flag} holds what JSON cannot (NaN, Infinity or half a character); leave it out")
        if not isinstance(given, dict):
            raise BadValueError(f'{flag} is no JSON object; write it as {{"temperature": 0.7}}')
        theme, system = given.get("theme", "system"), given.get("systemMessage", "")
        if not isinstance(theme, str) or theme not in THEMES:
            raise BadValueError(f"theme is {quoted(theme)} in {flag}; choose from {', '.join(THEMES)}")
        if not isinstance(system, str):
            raise BadValueError(f"systemMessage is {quoted(system)} in {flag}; give a text")
        fields = {FIELDS[k]: _checked(k, v, flag) for k, v in given.items() if k in FIELDS}
        if fields.get("max_tokens") == 0:
            raise BadValueError(f"max_tokens is 0 in {flag}, so no message had an answer; give 1 or more, or -1")
        return cls(given, THEMES[theme], system, fields)

    @property
    def unknown(self) -> list[str]:
        """Names of settings that the page does not have."""
        return sorted(self.given.keys() - FIELDS.keys() - {"theme", "systemMessage"})


def _is_sendable(given: Any) -> bool:
    """Whether the server can give it to its clients as it is: Python reads more than JSON has."""
    try:
        json.dumps(given, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        return False
    return True


def _checked(name: str, value: Any, flag: str) -> Any:
    try:
        return check_value(GenerateOptions, FIELDS[name], value)
    except WrongValueError as e:
        why = e.why[0].lower() + e.why[1:]
        raise BadValueError(f"{name} is {quoted(e.value)} in {flag}, but {why}") from None
