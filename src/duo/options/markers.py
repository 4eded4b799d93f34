"""Markers in the types of options: bounds, and functions that read a value.

`plain_values` applies them to plain values, and pydantic's core (`check`) to all others. They do what pydantic's own of
the same names do. They are duo's because importing pydantic takes longer than all else that the help of the program, or
a command with few options, needs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Field:
    """Bounds of a number; both ends belong to it."""

    ge: float
    le: float
    allow_inf_nan: bool = True

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        schema = handler(source)
        number = schema
        while number["type"].startswith("function"):  # a BeforeValidator around the number
            number = number["schema"]
        number |= {"ge": self.ge, "le": self.le}
        if number["type"] == "float":
            number["allow_inf_nan"] = self.allow_inf_nan
        return schema


@dataclass(frozen=True)
class BeforeValidator:
    """Called with what was given, before its type is checked. It may raise ValueError."""

    function: Callable[[Any], Any]

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        from pydantic_core import core_schema

        return core_schema.no_info_before_validator_function(self.function, handler(source))


@dataclass(frozen=True)
class AfterValidator:
    """Called with a value of the right type. It may raise ValueError."""

    function: Callable[[Any], Any]

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], Any]) -> Any:
        from pydantic_core import core_schema

        return core_schema.no_info_after_validator_function(self.function, handler(source))
