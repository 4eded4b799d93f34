"""Values whose check is plain to see. To import pydantic's core for them would be a tenth of `duo -p TEXT -n 8`.

What the core gives for a value is given here too, or `UNSURE`: then the core is asked, also for what is to be said of a
wrong value. tests/test_option_types.py compares both for all options.
"""

from __future__ import annotations

import re
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from duo.options.markers import AfterValidator, BeforeValidator, Field

UNSURE: Final = object()
_WHOLE = re.compile(r"-?[0-9]{1,15}")
_DECIMAL = re.compile(r"-?[0-9]{1,9}(\.[0-9]{1,9})?")
_EXACT = 2**53  # whole numbers up to here are floats, too


def plain_value(hint: Any, value: object) -> Any:
    """A value as a type of the tables has it."""
    if hasattr(value, "__next__"):
        return UNSURE  # it can be read only once
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _marked(args[0], args[1:], value)
    if origin is Literal:
        return value if type(value) is str and value in args else UNSURE
    if origin in (Union, UnionType):
        if value is None:
            return None if NoneType in args else UNSURE
        values = [x for x in (plain_value(a, value) for a in args if a is not NoneType) if x is not UNSURE]
        return values[0] if len(values) == 1 else UNSURE
    if origin is list:
        items = [plain_value(args[0], x) for x in value] if type(value) is list else [UNSURE]
        return UNSURE if UNSURE in items else items
    return _PLAIN[hint](value) if hint in _PLAIN else UNSURE


def _marked(kind: Any, markers: tuple[Any, ...], value: object) -> Any:
    if any(isinstance(m, AfterValidator) for m in markers):
        return UNSURE
    for m in reversed(markers):
        if isinstance(m, BeforeValidator):
            try:
                value = m.function(value)
            except ValueError:
                return UNSURE
    plain = plain_value(kind, value)
    bounds = [m for m in markers if isinstance(m, Field)]
    return plain if plain is UNSURE or all(b.ge <= plain <= b.le for b in bounds) else UNSURE


def _int(value: object) -> Any:
    if type(value) is str and _WHOLE.fullmatch(value):
        return int(value)
    return value if type(value) is int else UNSURE


def _float(value: object) -> Any:
    if type(value) is str and _DECIMAL.fullmatch(value):
        return float(value)
    if type(value) is int and -_EXACT <= value <= _EXACT:
        return float(value)
    return value if type(value) is float and abs(value) < _EXACT else UNSURE


_PLAIN: dict[Any, Any] = {
    Any: lambda value: value,
    bool: lambda value: value if type(value) is bool else UNSURE,
    str: lambda value: value if type(value) is str and value.isascii() else UNSURE,
    int: _int,
    float: _float,
}
