"""The tool and the JSON that models are asked for, and whether an answer has that form."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

from duo.support.wording import quoted


@with_config(ConfigDict(extra="forbid", strict=True))
class Table(TypedDict):
    """A booking. Each field is short, so an answer ends in time."""

    guests: int
    name: Annotated[str, Field(max_length=12)]
    day: Literal["monday", "friday", "sunday"]
    outside: bool


FORM = TypeAdapter(Table)
SCHEMA: dict[str, Any] = FORM.json_schema()
NAME = "book_table"
N_TOKENS = 128  # enough for all fields, with the white space that grammars allow
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {"name": NAME, "description": "Books a table in a restaurant.", "parameters": SCHEMA},
}
CHOICE: dict[str, Any] = {"type": "function", "function": {"name": NAME}}


def fault(text: str) -> str:
    """Why this JSON does not parse or lacks the form; empty if it is right."""
    try:
        FORM.validate_json(text)
    except ValidationError as e:
        first = e.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        return f"{where + ': ' if where else ''}{first['msg']} in {quoted(text, 120)}"
    return ""
