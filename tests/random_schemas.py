"""Random JSON schemas of what duo's grammars hold a text to, with short answers."""

import random
from typing import Any

NAMES = ["a", "name", "char", "root", "string", "a-b", "a_b", "zwei Wörter", 'quo"te', "back\\slash", "1"]
CONSTANTS: list[Any] = [
    0,
    -7,
    2.5,
    True,
    None,
    "",
    "yes",
    'quo"te',
    "a\\b",
    "line\nend",
    "tab\t",
    "é",
    "\u2028",
    [1, "x"],
    {"k": 0},
]
PATTERNS = [
    "^[a-f]{2,4}$",
    r"^\d{3}-\d{2}$",
    "^(yes|no)$",
    r"^v\d\.\d$",
    "^[^x]{1,3}$",
    r"^\w{1,5}@\w{2}\.de$",
    "^.{0,4}$",
]


def schema(r: random.Random, depth: int = 0) -> dict[str, Any]:
    kinds = ["string", "pattern", "integer", "number", "boolean", "null", "enum", "const", "several", "format"]
    kinds += ["object", "array", "tuple", "any"] * 2 if depth < 2 else []
    match r.choice(kinds):
        case "string":
            least = r.randint(0, 3)
            return {"type": "string", "minLength": least, "maxLength": least + r.randint(0, 8)}
        case "pattern":
            return {"type": "string", "pattern": r.choice(PATTERNS)}
        case "format":
            return {"type": "string", "format": r.choice(["date", "time", "date-time", "uuid"])}
        case "enum":
            return {"enum": r.sample(CONSTANTS, r.randint(1, 4))}
        case "const":
            return {"const": r.choice(CONSTANTS)}
        case "several":
            return {"type": r.sample(["integer", "boolean", "null", "string"], 2), "maxLength": 5}
        case "any":
            return {"anyOf": [schema(r, depth + 1), {"type": "null"}]}
        case "array":
            least = r.randint(0, 2)
            return {
                "type": "array",
                "items": schema(r, depth + 1),
                "minItems": least,
                "maxItems": least + r.randint(0, 2),
            }
        case "tuple":
            items = [schema(r, depth + 1) for _ in range(r.randint(1, 3))]
            return {"type": "array", "prefixItems": items, "items": False, "minItems": len(items)}
        case "object":
            names = r.sample(NAMES, r.randint(1, 4))
            return {
                "type": "object",
                "properties": {n: schema(r, depth + 1) for n in names},
                "required": r.sample(names, r.randint(0, len(names))),
                "additionalProperties": False,
            }
        case kind:
            return {"type": kind}
