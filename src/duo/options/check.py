"""Checks one value against the type of its option, by pydantic's core.

pydantic itself is not asked: its import and a schema of a whole table, of which few options are given, would be half of
a start. The core's schemas are plain dicts (docs.pydantic.dev, pydantic_core.core_schema).
"""

from __future__ import annotations

import sys
from functools import cache
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

from duo.options.plain_values import UNSURE, plain_value

if TYPE_CHECKING:
    from pydantic_core import SchemaValidator

_PLAIN: dict[Any, str] = {
    bool: "bool", int: "int", float: "float", str: "str", bytes: "bytes", Any: "any",
}  # fmt: skip


class WrongValueError(Exception):
    """why: what the type wants. value: the value, or the part of it that is wrong."""

    def __init__(self, why: str, value: object) -> None:
        super().__init__(why)
        self.why, self.value = why, value


def core_schema(hint: Any) -> dict[str, Any]:
    """As pydantic makes it of a type, for those types that options have."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        schema = core_schema(args[0])
        for marker in args[1:]:
            if (around := getattr(marker, "__get_pydantic_core_schema__", None)) is not None:
                schema = around(args[0], lambda _source, inner=schema: inner)
        return schema
    if origin is Literal:
        return {"type": "literal", "expected": list(args)}
    if origin in (Union, UnionType):
        choices = [core_schema(a) for a in args if a is not NoneType]
        one = choices[0] if len(choices) == 1 else {"type": "union", "choices": choices}
        return {"type": "nullable", "schema": one} if NoneType in args else one
    if origin is list:
        return {"type": "list", "items_schema": core_schema(args[0])}
    if origin is tuple:
        return {"type": "tuple", "items_schema": [core_schema(a) for a in args]}
    if origin is dict:
        return {"type": "dict", "keys_schema": core_schema(args[0]), "values_schema": core_schema(args[1])}
    return {"type": _PLAIN[hint]}


@cache
def _validator(table: type, name: str) -> SchemaValidator:
    from pydantic_core import SchemaValidator

    schema: Any = core_schema(table.__annotations__[name])
    return SchemaValidator(schema)


def check_value(table: type, name: str, value: object) -> Any:
    """The value as the type of this option of a table has it. Raises WrongValueError."""
    if "pydantic_core" not in sys.modules:
        plain = plain_value(table.__annotations__[name], value)
        if plain is not UNSURE:
            return plain
    validator = _validator(table, name)
    try:
        return validator.validate_python(value)
    except ValueError as e:
        from pydantic_core import ValidationError

        if not isinstance(e, ValidationError):
            raise
        first = e.errors()[0]
        raise WrongValueError(first["msg"].removeprefix("Value error, "), first["input"]) from None
