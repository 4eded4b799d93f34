"""Signatures with every keyword written out, for help(), editors and shells."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import cache
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from duo.options.option import Opt

F = TypeVar("F", bound=Callable[..., Any])


def _default(hint: Any) -> Any:
    """The default: of the Opt in the annotation, or the last value in it."""
    value = get_args(hint)[-1] if get_origin(hint) is Annotated else inspect.Parameter.empty
    return value.default if isinstance(value, Opt) else value


def _bare(hint: Any) -> Any:
    """The type without its markers."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _bare(args[0])
    if origin in (Union, UnionType):
        return Union[tuple(_bare(a) for a in args)]  # noqa: UP007 - of a tuple
    return origin[tuple(_bare(a) for a in args)] if origin in (list, tuple, dict) else hint


@cache  # tables share most of their keys, and the first `Duo` waits for this
def _keywords(table: type) -> dict[str, inspect.Parameter]:
    parameters: dict[str, inspect.Parameter] = {}
    for base in getattr(table, "__orig_bases__", ()):
        parameters |= _keywords(base) if hasattr(base, "__total__") else {}
    for name, hint in table.__annotations__.items():
        if name not in parameters:
            parameters[name] = inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=_default(hint), annotation=_bare(hint)
            )
    return parameters


def keywords(table: type, positional: Sequence[str] = (), **defaults: Any) -> Callable[[F], F]:
    """Gives a function with `**options: Unpack[table]` a signature that names all of them.

    table: a TypedDict whose keys are Annotated with their default. positional: keys that `*positional` takes, in that
    order. defaults: those that this function has instead.
    """

    def decorated(function: F) -> F:
        parameters = dict(_keywords(table))
        for name, value in defaults.items():
            parameters[name] = parameters[name].replace(default=value)
        own = inspect.signature(function)
        first: list[inspect.Parameter] = []
        for p in own.parameters.values():
            if p.kind is p.KEYWORD_ONLY:
                parameters[p.name] = p
            elif p.kind is p.POSITIONAL_OR_KEYWORD:
                first.append(p)
        first += [parameters.pop(name).replace(kind=inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in positional]
        function.__signature__ = own.replace(parameters=[*first, *parameters.values()])  # type: ignore[attr-defined]
        return function

    return decorated
