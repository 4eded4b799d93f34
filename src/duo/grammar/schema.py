"""JSON schemas as grammars: llama-cpp-python's converter, with its mistakes corrected."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterator
from functools import lru_cache
from importlib.util import module_from_spec, spec_from_file_location
from typing import Any

from duo._libs import library_dir, reinstall
from duo.errors import BadValueError, DuoError
from duo.grammar.repetition import N_BYTES, bounded, is_unlimited, too_large
from duo.support.wording import one_line

# Characters that a JSON string cannot hold without an escape: RFC 8259, section 7.
BARE = set('"\\') | {chr(c) for c in range(0x20)}
# Keywords that do not constrain the values.
ANNOTATIONS = frozenset("title description default examples deprecated readOnly writeOnly $comment".split())  # noqa: SIM905
REPETITION = "_build_repetition"  # the converter's function, which has no public name
ANY = r'[^"\\\x7F\x00-\x1F]'

# Keywords that the converter ignores: a text that follows the grammar may violate them.
NOT_ENFORCED = frozenset(
    """
    minimum maximum exclusiveMinimum exclusiveMaximum multipleOf uniqueItems minProperties maxProperties
    patternProperties propertyNames not if then else contains minContains maxContains dependentRequired
    dependentSchemas unevaluatedProperties unevaluatedItems
    """.split()  # noqa: SIM905 (21 lines otherwise)
)


def _converter_module() -> Any:
    # Loaded from its file: the package's __init__ would redirect llama.cpp's log and take half a second.
    spec = spec_from_file_location("duo._llama_grammar", library_dir().parent / "llama_grammar.py")
    if spec is None or spec.loader is None:
        raise DuoError(f"llama-cpp-python has no converter for JSON schemas; {reinstall()}")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@lru_cache(maxsize=1)
def _converter() -> type:
    theirs = _converter_module()
    setattr(theirs, REPETITION, bounded(getattr(theirs, REPETITION)))

    class Converter(theirs.SchemaConverter):  # type: ignore[name-defined,misc]
        """Overrides methods of the parent, whose names these are."""

        def __init__(self) -> None:
            super().__init__(prop_order={}, allow_fetch=False, dotall=False, raw_pattern=False)
            self._rule_of_ref: dict[str, str] = {}
            self._nested = False
            self._n_bytes = 0

        def _format_literal(self, literal: str) -> str:
            readable = json.dumps(json.loads(literal), ensure_ascii=False)
            if all(not 0xD800 <= ord(c) < 0xE000 for c in readable):
                literal = readable
            text: str = super()._format_literal(literal.replace("\\", "\\\\"))
            return text

        def _add_rule(self, name: str, rule: str) -> str:
            if rule == theirs.PRIMITIVE_RULES["char"].content:
                rule = ANY + rule[rule.index(" |") :]
            elif rule == theirs.DOT:
                rule = ANY
            n_before = len(self._rules)
            added: str = super()._add_rule(name, rule)
            self._n_bytes += len(rule) if len(self._rules) > n_before else 0
            if self._n_bytes > N_BYTES:
                raise too_large()
            return added

        def _resolve_ref(self, ref: str) -> str:
            if ref not in self._rule_of_ref:
                # A name of our own: the last parts of two references may be the same, or not valid as a rule's name.
                self._rule_of_ref[ref] = name = f"ref-{len(self._rule_of_ref)}-"
                self._rule_of_ref[ref] = self.visit(self._refs[ref], name)
            return self._rule_of_ref[ref]

        def visit(self, schema: Any, name: str) -> str:
            nested, self._nested = self._nested, True
            if nested:
                name = name or "empty"  # only the whole schema has no name: the parent calls it root
            if schema is True or (nested and isinstance(schema, dict) and schema.keys() <= ANNOTATIONS):
                schema = {"type": ["object", "array", "string", "number", "boolean", "null"]}
            if not isinstance(schema, dict):
                raise ValueError(f"{json.dumps(schema)} is not a schema")
            if schema.get("items") == {} and "prefixItems" not in schema:
                schema = {**schema, "items": True}
            if "enum" in schema or "const" in schema:
                schema = {k: v for k, v in schema.items() if k != "type"}
            elif isinstance(schema.get("type"), list) and not {"$ref", "oneOf", "anyOf"} & schema.keys():
                schema = {"anyOf": [{**schema, "type": t} for t in schema["type"]]}
            rule: str = super().visit(schema, name)
            return rule

        def _visit_pattern(self, pattern: str, name: str) -> str:
            try:
                _compiled(pattern)
            except re.error as e:
                raise ValueError(f"the pattern {pattern} is not a regular expression ({e})") from None
            rule: str = super()._visit_pattern(_plain_pattern(pattern), name)
            return rule

    return Converter


def _compiled(pattern: str) -> re.Pattern[str]:
    """Raises re.error."""
    with warnings.catch_warnings():  # of "[[", which may mean something else one day
        warnings.simplefilter("ignore", FutureWarning)
        return re.compile(pattern)


def _plain_pattern(pattern: str) -> str:
    r"""The pattern rewritten without \d, \w and \., which the converter does not know. Raises ValueError if it matches
    what a JSON string cannot hold."""

    def plain(match: re.Match[str]) -> str:
        unit = match[0]
        if unit.startswith("["):
            unit = unit.replace(r"\d", "0-9").replace(r"\w", "A-Za-z0-9_")
            if unit.startswith("[^"):
                unit = ANY[:-1] + unit[2:]
            if any(map(_compiled(unit).match, BARE)):
                raise ValueError(
                    f"the class {match[0]} of the pattern {pattern} contains quotes, backslashes or control characters"
                )
            return unit
        if unit in (r"\d", r"\w"):
            return {r"\d": "[0-9]", r"\w": "[A-Za-z0-9_]"}[unit]
        if len(unit) < 2 or unit[1].isalnum() or unit[1] in BARE:
            raise ValueError(f"{unit} in the pattern {pattern} cannot be written as a grammar")
        return unit if unit[1] in "[]()|{}*+?" else f"[\\x{ord(unit[1]):02X}]"

    # A class that is not closed ends with the pattern: otherwise each "[" is searched to the end.
    return re.sub(r'\\.|\[(?:\\.|[^\]\\])*(?:\]|\Z)|["\n\r\t\\]', plain, pattern)


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
    tree = read_schema(schema)
    try:
        text = json.dumps(tree, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as e:
        raise _not_json(e) from None
    return _converted(text)


def _without_root_ref(schema: Any) -> Any:
    """The converter ignores what stands beside a "$ref", such as the "$defs" of a recursive model."""
    if not isinstance(schema, dict) or "$ref" not in schema or {"anyOf", "oneOf"} & schema.keys():
        return schema
    return {k: v for k, v in schema.items() if k != "$ref"} | {"anyOf": [{"$ref": schema["$ref"]}]}


@lru_cache(maxsize=64)
def _converted(text: str) -> str:
    converter = _converter()()
    try:
        converter.visit(converter.resolve_refs(_without_root_ref(json.loads(text)), "stdin"), "")
    except KeyError as e:
        raise BadValueError(f"the JSON schema (-j) refers to {e}, which it does not contain; correct it") from None
    except RecursionError:
        raise BadValueError("the JSON schema (-j) is nested too deeply for a grammar; simplify it") from None
    except BadValueError:
        raise
    except Exception as e:  # the converter asserts, and expects certain shapes
        why = one_line(str(e), 200) or "its structure is not that of a schema"
        raise BadValueError(f"the JSON schema (-j) cannot be turned into a grammar: {why}; simplify it") from None
    grammar: str = converter.format_grammar()
    return grammar


def not_enforced(schema: Any) -> list[str]:
    """Keywords of the schema that its grammar does not enforce, in alphabetical order."""

    def keywords(s: Any) -> Iterator[str]:
        if isinstance(s, list):
            for x in s:
                yield from keywords(x)
        for key, value in s.items() if isinstance(s, dict) else ():
            if key in NOT_ENFORCED or (key in ("maxLength", "maxItems") and is_unlimited(value)):
                yield key
            if key in ("properties", "$defs", "definitions") and isinstance(value, dict):
                yield from keywords(list(value.values()))
            elif key not in ("const", "enum", "default", "examples"):
                yield from keywords(value)

    return sorted(set(keywords(read_schema(schema))))
