"""JSON schemas as grammars, and what these do not enforce."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from duo.errors import BadValueError
from duo.grammar.converter import SchemaConverter
from duo.grammar.repetition import is_unlimited
from duo.support.wording import one_line

# Keywords without a place in a grammar: a text that follows the grammar may violate them.
NOT_ENFORCED = frozenset(
    """
    minimum maximum exclusiveMinimum exclusiveMaximum multipleOf uniqueItems minProperties maxProperties
    patternProperties propertyNames not if then else contains minContains maxContains dependentRequired
    dependentSchemas dependencies unevaluatedProperties unevaluatedItems $dynamicRef $recursiveRef
    """.split()  # noqa: SIM905 (21 lines otherwise)
)
NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")  # schemas by names


def read_schema(schema: Any) -> Any:
    """A schema that is given as JSON text, a dict or a pydantic model. Raises BadValueError."""
    if hasattr(schema, "model_json_schema"):
        return schema.model_json_schema()
    if not isinstance(schema, str):
        return schema
    try:
        return json.loads(schema)
    except (ValueError, RecursionError) as e:
        raise _not_json(e) from None


def _not_json(e: Exception) -> BadValueError:
    return BadValueError(f"the JSON schema (-j) is not JSON ({e}); check it")


def schema_to_gbnf(schema: Any) -> str:
    """A grammar for the JSON texts that `schema` (see read_schema) allows. Raises BadValueError."""
    return _converted(_as_text(schema))[0]


def _as_text(schema: Any) -> str:
    try:
        return json.dumps(read_schema(schema), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as e:
        raise _not_json(e) from None


@lru_cache(maxsize=64)
def _converted(text: str) -> tuple[str, frozenset[str]]:
    """The grammar, and keywords that it enforces elsewhere only."""
    try:
        converter = SchemaConverter(json.loads(text))
        return converter.grammar(), frozenset(converter.not_enforced())
    except RecursionError:
        raise BadValueError("the JSON schema (-j) is nested too deeply for a grammar; simplify it") from None
    except BadValueError:
        raise
    except ValueError as e:
        why = one_line(e, 200)
        raise BadValueError(f"the JSON schema (-j) cannot be turned into a grammar: {why}; simplify it") from None


def not_enforced(schema: Any) -> list[str]:
    """Keywords of the schema that its grammar does not enforce, in alphabetical order. Raises BadValueError."""
    if schema is None:
        return []
    return sorted({*_keywords(read_schema(schema)), *_converted(_as_text(schema))[1]})


def _keywords(s: Any) -> Iterator[str]:
    """Those that are nowhere enforced."""
    if isinstance(s, list):
        for x in s:
            yield from _keywords(x)
    for key, value in s.items() if isinstance(s, dict) else ():
        if key in NOT_ENFORCED or (key in ("maxLength", "maxItems") and is_unlimited(value)):
            yield key
        if key in NAMED and isinstance(value, dict):
            yield from _keywords(list(value.values()))
        elif key not in ("const", "enum", "default", "examples"):
            yield from _keywords(value)
