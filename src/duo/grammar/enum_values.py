"""Which values of an enum (or const) follow the keywords beside it."""

from __future__ import annotations

from typing import Any

from duo.grammar.impossible import ImpossibleError
from duo.grammar.merged_schema import Form, SchemaMerger, key_of, types_of


def follows(value: Any, form: Form, merger: SchemaMerger) -> bool:
    """Whether a value follows a schema, as far as a grammar would hold it to that."""

    def follows_schema(inner: Any, schema: Any) -> bool:
        try:
            return follows(inner, merger.form(schema), merger)
        except ImpossibleError:
            return False

    if "types" in form and not {*types_of(value)} & {*form["types"]}:
        return False
    merger.spend(len(form.get("enum", ())))
    if "enum" in form and key_of(value) not in map(key_of, form["enum"]):
        return False
    if not all(any(follows_schema(value, s) for s in schemas) for schemas in form.get("alternatives", ())):
        return False
    if isinstance(value, str):
        if "pattern" in form:  # Python's expressions may take for ever
            merger.not_enforced.add("pattern")
        return _fits(value, form, "Length")
    if isinstance(value, list):
        prefix = form.get("prefix", [])
        schemas = [*prefix, *[form.get("rest", True)] * (len(value) - len(prefix))]
        return _fits(value, form, "Items") and all(map(follows_schema, value, schemas[: len(value)]))
    if isinstance(value, dict):
        properties, others = form.get("properties", {}), form.get("additional", True)
        return value.keys() >= {*form.get("required", ())} and all(
            follows_schema(inner, properties.get(name, others)) for name, inner in value.items()
        )
    return True


def _fits(value: str | list[Any], form: Form, what: str) -> bool:
    least: int = form.get(f"min{what}", 0)
    most: int = form.get(f"max{what}", len(value))
    return least <= len(value) <= most
