"""Types as a reader of the documentation wants them: `int`, 1 to 512, or `"auto"`."""

from __future__ import annotations

from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

from duo.options.markers import Field

N_LARGE = 10**6  # bounds beyond are only those of the machine's numbers


def _bounded(text: str, field: Field) -> str:
    low = f"{field.ge:g}" if abs(field.ge) < N_LARGE else ""
    high = f"{field.le:g}" if abs(field.le) < N_LARGE else ""
    if low and high:
        return f"{text}, {low} to {high}"
    if low or high:
        return f"{text} ≥ {low}" if low else f"{text} ≤ {high}"
    return text


def _members(hint: Any) -> list[str]:
    """The parts of a union; bounds of one part stand with it."""
    if get_origin(hint) is Annotated:
        inner, *extras = get_args(hint)
        found = _members(inner)
        for field in (e for e in extras if isinstance(e, Field)):
            found = [_bounded(m, field) if m in ("`int`", "`float`") else m for m in found]
        return found
    if get_origin(hint) is Literal:
        return [f'`"{value}"`' for value in get_args(hint)]
    if hint is NoneType:
        return ["`None`"]
    if hint is Any:
        return ["any"]
    if get_origin(hint) in (list, dict, tuple):
        inside = ", ".join(" or ".join(_members(a)).replace("`", "") for a in get_args(hint))
        return [f"`{get_origin(hint).__name__}[{inside}]`"]
    args = get_args(hint)
    if args and getattr(get_origin(hint), "__module__", "") == "collections.abc":
        return [f"`{get_origin(hint).__name__}`"]
    if args:
        return [text for a in args for text in _members(a)]
    return [f"`{hint.__name__}`"]


def type_text(hint: Any) -> str:
    """The type in Markdown. `None` comes last, because it is mostly the default."""
    found = list(dict.fromkeys(_members(hint)))
    return " or ".join(sorted(found, key=lambda m: m == "`None`"))
