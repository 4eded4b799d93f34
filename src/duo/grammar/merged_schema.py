"""What several JSON schemas that hold at once (allOf, what stands beside a $ref or anyOf) say as one."""

from __future__ import annotations

import json
from functools import reduce
from typing import Any

from duo.grammar.impossible import ImpossibleError
from duo.grammar.references import References
from duo.grammar.repetition import count, is_unlimited, too_large
from duo.grammar.rules import FORMATS
from duo.support.wording import quoted

Form = dict[str, Any]
"""A schema with other keywords: "types" (a list), "enum" (also for const), "alternatives" (a list for each anyOf and
oneOf), "prefix" and "rest" (items of arrays), "additional" (properties). Keywords that no grammar enforces are gone."""

TYPES = ("object", "array", "string", "integer", "number", "boolean", "null")
N_WORK = 300_000  # of merging: two seconds
LEAST = ("minLength", "minItems")
MOST = ("maxLength", "maxItems")


def key_of(value: Any) -> str:
    """The same for equal JSON values."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value, sort_keys=True)


def types_of(value: Any) -> tuple[str, ...]:
    match value:
        case None:
            return ("null",)
        case bool():
            return ("boolean",)
        case int():
            return "integer", "number"
        case float():
            return ("integer", "number") if value.is_integer() else ("number",)
        case str():
            return ("string",)
        case list():
            return ("array",)
    return ("object",)


def _parts(schema: Any) -> list[Any]:
    return list(schema["allOf"]) if isinstance(schema, dict) and schema.keys() == {"allOf"} else [schema]


def _size(form: Form) -> int:
    return sum(len(x) for x in form.values() if isinstance(x, dict | list))


class SchemaMerger:
    def __init__(self, references: References, not_enforced: set[str]) -> None:
        """not_enforced: where keywords are noted that could not be merged."""
        self._references, self.not_enforced = references, not_enforced
        self._n_work = 0

    def spend(self, n: int) -> None:
        """Work: as many values, properties, items or alternatives were looked at. Raises BadValueError."""
        self._n_work += n
        if self._n_work > N_WORK:
            raise too_large()

    def form(self, schema: Any, within: frozenset[str] = frozenset()) -> Form:
        """The schema with what it refers to, and all of its allOf. Raises ValueError.

        within: references that are being followed.
        """
        self.spend(10)
        if schema is True:
            return {}
        if schema is False:
            raise ImpossibleError("no value follows the schema false")
        if not isinstance(schema, dict):
            raise ValueError(f"{quoted(schema, 40)} is not a schema")
        # Clients write null for what is absent.
        schema = {key: value for key, value in schema.items() if value is not None or key == "const"}
        forms = []
        if "$ref" in schema:
            ref = schema["$ref"]
            target = self._references.target(ref)
            if ref in within:
                raise ValueError(f"{quoted(ref, 100)} refers to itself")
            forms.append(self.form(target, within | {ref}))
        forms += [self.form(part, within) for part in _list(schema, "allOf")]
        own = self._own(schema)
        self.spend(_size(own))
        return self.merged([*forms, own])

    def merged(self, forms: list[Form]) -> Form:
        """Raises ValueError."""
        return reduce(self._both, [f for f in forms if f] or [{}])

    def _own(self, schema: dict[str, Any]) -> Form:
        """Without references and allOf."""
        form: Form = {}
        if "type" in schema:
            form["types"] = types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
            for name in types:
                if name not in TYPES:
                    raise ValueError(f"{quoted(name, 40)} is not a type")
        enums = [schema["enum"]] if "enum" in schema else []
        for values in enums + ([[schema["const"]]] if "const" in schema else []):
            if not isinstance(values, list) or not values:
                raise ValueError(f"the enum is {quoted(values, 40)} and not a list of values")
            form["enum"] = _common(form["enum"], values) if "enum" in form else values
        if "enum" in form and "types" in form and not any({*types_of(v)} & {*form["types"]} for v in form["enum"]):
            del form["types"]  # a slip of the author's: llama-server takes such values
            self.not_enforced.add("type")
        if alternatives := [_list(schema, key, least=1) for key in ("anyOf", "oneOf") if key in schema]:
            form["alternatives"] = alternatives
        for key in (*LEAST, *MOST):
            if key in schema and not (key in MOST and is_unlimited(schema[key])):
                form[key] = count(schema[key])
        for key in ("pattern", "format"):
            if key in schema:
                if not isinstance(schema[key], str):
                    raise ValueError(f"the {key} {quoted(schema[key], 40)} is not a string")
                form |= {key: schema[key]} if key == "pattern" or schema[key] in FORMATS else {}
        return form | _object_form(schema) | _array_form(schema)

    def _both(self, a: Form, b: Form) -> Form:
        self.spend(_size(a) + _size(b))
        if "properties" in a or "properties" in b:
            a, b = self._each_with_all_properties(a, b)
        if "prefix" in a or "prefix" in b:
            n = max(len(x.get("prefix", ())) for x in (a, b))
            a, b = _with_prefix(a, n), _with_prefix(b, n)
        out = {**b, **a}
        for key in a.keys() & b.keys():
            out[key] = self._one(key, a[key], b[key])
        return out

    def _one(self, key: str, a: Any, b: Any) -> Any:
        """What a keyword that is in both is in one."""
        if key in LEAST or key in MOST:
            return max(a, b) if key in LEAST else min(a, b)
        if key in ("additional", "rest"):
            return self._schema_for_both(a, b)
        if key == "properties":
            return {name: self._schema_for_both(a[name], b[name]) for name in a}
        if key == "prefix":
            return [self._schema_for_both(x, y) for x, y in zip(a, b, strict=True)]
        if key == "required":
            return list(dict.fromkeys(a + b))
        if key == "alternatives":
            return a + b
        if key == "enum":
            return _common(a, b)
        if key == "types":
            common = [t for t in TYPES if _allows(a, t) and _allows(b, t)]
            if not common:
                raise ImpossibleError(f"no value is of the types {', '.join(a)} and {', '.join(b)}")
            return common
        if a != b:  # patterns, formats
            self.not_enforced.add(key)
        return a

    def _schema_for_both(self, a: Any, b: Any) -> Any:
        """Each part once: schemas that refer to each other would grow without end."""
        if a is True or a == {}:
            return b
        if b is True or b == {}:
            return a
        parts = {key_of(x): x for x in (*_parts(a), *_parts(b))}
        self.spend(sum(map(len, parts)) // 50)
        return next(iter(parts.values())) if len(parts) == 1 else {"allOf": list(parts.values())}

    def _each_with_all_properties(self, a: Form, b: Form) -> tuple[Form, Form]:
        """The two forms, where each knows the properties of the other one."""
        names = list(dict.fromkeys([*a.get("properties", ()), *b.get("properties", ())]))
        out = []
        for form in (a, b):
            properties = form.get("properties", {})
            others = form.get("additional", True)
            if others is False and len(properties) < len(names):
                # Validators then refuse each object. What was meant is a list of all properties.
                self.not_enforced.add("additionalProperties")
                others = True
            out.append({**form, "properties": {name: properties.get(name, others) for name in names}})
        return out[0], out[1]


def _allows(types: list[str], name: str) -> bool:
    return name in types or (name == "integer" and "number" in types)


def _list(schema: dict[str, Any], key: str, least: int = 0) -> list[Any]:
    found = schema.get(key, [])
    if not isinstance(found, list) or len(found) < least:
        raise ValueError(f"{key} is {quoted(found, 40)} and not a list of schemas")
    return found


def _common(a: list[Any], b: list[Any]) -> list[Any]:
    keys = {key_of(v) for v in b}
    found = [v for v in a if key_of(v) in keys]
    if not found:
        raise ImpossibleError("no value is in both enums")
    return found


def _object_form(schema: dict[str, Any]) -> Form:
    form: Form = {}
    if "properties" in schema:
        if not isinstance(schema["properties"], dict):
            raise ValueError(f"the properties {quoted(schema['properties'], 40)} are not an object of schemas")
        form["properties"] = schema["properties"]
    if "additionalProperties" in schema:
        form["additional"] = schema["additionalProperties"]
    required = schema.get("required")
    if isinstance(required, list) and (names := [x for x in required if isinstance(x, str)]):
        form["required"] = list(dict.fromkeys(names))
    return form


def _array_form(schema: dict[str, Any]) -> Form:
    """Drafts before 2020-12 have a list of schemas in items, and those of what follows in additionalItems."""
    items, prefix = schema.get("items"), schema.get("prefixItems")
    rest = {"rest": schema["additionalItems"]} if "additionalItems" in schema else {}
    if isinstance(items, list):
        return {"prefix": items, **rest}
    rest = {} if items is None else {"rest": items}
    if isinstance(prefix, list):
        return {"prefix": prefix, **rest}
    return rest if prefix is None else {"rest": prefix, **rest}


def _with_prefix(form: Form, n: int) -> Form:
    prefix = form.get("prefix", [])
    return {**form, "prefix": [*prefix, *[form.get("rest", True)] * (n - len(prefix))]}
