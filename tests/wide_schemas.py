"""Random JSON schemas with every keyword that duo's grammars hold a text to, also where texts may be long."""

import random
from typing import Any

NAMES = ["a", "ab", "abc", "b", "", 'q"', "zwei Wörter", "$ref", "items"]
PATTERNS = [
    "^$|^[a-z]+$", "^yes|no$", "(^a$)|(^b$)", r"(^|\s)foo(\s|$)", r"^tel:\+?\d+$", r"^x\+{2}$", "^(?:ab|c)+$",
    r"^[\w\.-]+@[^\/]+$", r"^\s*a\s$", "^https?://", r"\.pdf$", r"\S", "b+", "^[a-z][a-z0-9-]*$", r'^"\\\n$', "^{.*}$",
    "^[ -~]+$", "^.{0,4}$", r"^[^\s,]+(, [^\s,]+)*$", "^(a|b?c)*?d{1,3}$", r"^\$\d+\.\d{2}$", r"[\u0041-\u0043]$",
    "^(?=x)",
]  # fmt: skip
VALUES: list[Any] = [0, 1, 2.5, True, None, "", "a", "yes", "né", [1, "x"], {"a": 0}]
ROOT = {"$defs": {"a/b": {"type": "integer"}, "color": {"type": "string", "enum": ["red", "blue"]}}}


def wide_schema(r: random.Random) -> dict[str, Any]:
    made = _schema(r, 0)
    return {**made, **ROOT} if isinstance(made, dict) else ROOT


def _schema(r: random.Random, depth: int) -> Any:
    kinds = [_string, _string, _enum, _plain, _reference]
    kinds += [_object, _object, _array, _merged, _choice] * 2 if depth < 3 else []
    return r.choice(kinds)(r, depth)


def _string(r: random.Random, _: int) -> Any:
    out: dict[str, Any] = {"type": "string"} if r.random() < 0.7 else {}
    if r.random() < 0.6:
        out["pattern"] = r.choice(PATTERNS)
    if r.random() < 0.5:
        out["minLength"] = r.randint(0, 2)
    if r.random() < 0.5:
        out["maxLength"] = r.randint(2, 8)
    return out or {"format": "date"}


def _enum(r: random.Random, _: int) -> Any:
    return {"enum": r.sample(VALUES, 4)} if r.random() < 0.7 else {"const": r.choice(VALUES)}


def _plain(r: random.Random, _: int) -> Any:
    kind = r.choice(["integer", "number", "boolean", "null"])
    return r.choice([{"type": kind}, {"type": [kind, "string"], "maxLength": 2}, {"x-order": 1}, True, {"title": "x"}])


def _reference(r: random.Random, _: int) -> Any:
    beside = r.choice([{}, {"default": "red"}, {"minLength": 4}])
    return {"$ref": r.choice(["#/$defs/a~1b", "#/$defs/color"]), **beside}


def _object(r: random.Random, depth: int) -> Any:
    names = r.sample(NAMES, r.randint(0, 4))
    out: dict[str, Any] = {"type": "object"} if r.random() < 0.8 else {}
    if r.random() < 0.8:
        out["properties"] = {n: _schema(r, depth + 1) for n in names}
    if r.random() < 0.6:
        out["required"] = r.sample(NAMES, 2) if r.random() < 0.2 else names[:2]
    if r.random() < 0.6:
        out["additionalProperties"] = r.choice([True, False, _schema(r, depth + 1)])
    return out


def _array(r: random.Random, depth: int) -> Any:
    out: dict[str, Any] = {"type": "array"}
    if r.random() < 0.5:
        out["prefixItems"] = [_schema(r, depth + 1) for _ in range(r.randint(1, 3))]
    if r.random() < 0.6:
        out["items"] = r.choice([False, _schema(r, depth + 1), _schema(r, depth + 1)])
    if r.random() < 0.4:
        out["minItems"] = r.randint(0, 3)
    if r.random() < 0.4:
        out["maxItems"] = r.randint(3, 5)
    return out


def _merged(r: random.Random, depth: int) -> Any:
    return {**r.choice([{}, _object(r, depth + 1)]), "allOf": [_schema(r, depth + 1) for _ in range(r.randint(1, 2))]}


def _choice(r: random.Random, depth: int) -> Any:
    beside = r.choice([{}, _object(r, depth + 1)])
    few = [{"required": [n]} for n in r.sample(NAMES, 2)]
    return {**beside, "anyOf": r.choice([few, [_schema(r, depth + 1) for _ in range(2)]])}
