"""Grammars of JSON schemas: the texts that they allow, without a model."""

import json
import random
from typing import Any

import jsonschema
import pytest
from grammar_texts import Grammar
from sizes import size
from wide_schemas import wide_schema

from duo import BadValueError
from duo.compat.llama_cpp.tools import choice_of
from duo.grammar.grammar import grammar_of_schema
from duo.grammar.schema import not_enforced


def check(schema: Any, good: list[Any], bad: list[Any]) -> None:
    """Values, or JSON text in a tuple."""
    grammar = Grammar(grammar_of_schema(schema))
    for values, is_good in ((good, True), (bad, False)):
        for value in values:
            text = value[0] if isinstance(value, tuple) else json.dumps(value, ensure_ascii=False)
            assert grammar.allows(text) == is_good, (schema, text)


def pattern(p: str, **more: Any) -> dict[str, Any]:
    return {"type": "string", "pattern": p, **more}


@pytest.mark.parametrize("wanted,good,bad", [
    # alternatives with anchors of their own
    (pattern("^$|^[a-z]+$"), ["", "ab"], ["$", "a1", ('"$} ',)]),
    (pattern("^yes|no$"), ["yes", "no", "yesx", "xno"], ["xyes", "nox"]),
    (pattern("(^yes$)|(^no$)"), ["yes", "no"], ["yesno", "yesx"]),
    (pattern(r"(^|\s)foo(\s|$)"), ["foo", "a foo b"], ["afoo"]),
    (pattern("^(?:yes|no)$"), ["yes", "no"], ["yesno"]),
    # escapes and quantifiers
    (pattern(r"^tel:\+?\d+$"), ["tel:+1", "tel:12"], ["tel:", "+1", "tel:++1", "12"]),
    (pattern(r"^x\+{2}$"), ["x++"], ["x+x+", "x+"]),
    (pattern(r"^[\w\.-]+@[^\/]+$"), ["a.b-c@x y", 'a@"'], ["@x", "a@/"]),
    (pattern(r"^\s*a\s$"), [" a ", "a\t"], ["a"]),
    (pattern(r'^"\\\n/$'), ['"\\\n/'], ['"', "\\\\n/"]),
    (pattern("^[ -~]+$"), ['a"b\\'], ["\n", "é", ""]),
    (pattern("^{.*}$"), ["{}", '{"}'], ["{", "{\n}"]),
    (pattern(r"^\u0041\x42[\u{43}-\u{45}]$"), ["ABC", "ABE"], ["ABF"]),
    # parts of a string
    (pattern("^https?://"), ["http://x", "https://"], ["ftp://x", "xhttp://"]),
    (pattern(r"\.pdf$", maxLength=6), ["x.pdf", ".pdf"], [".pdfx", "pdf", "abc.pdf"]),
    (pattern(r"\S"), ["x", " x ", 'a"'], ["", "  "]),
    (pattern(r"^[^\s,]$"), ["x", "é"], [",", " ", "\ufeff", "\x85"]),
    (pattern("b*"), ["", 'a"c'], [1]),
    (pattern("a{" + "1" * 20_000), [], ["a{1"]),  # in linear time
    # lengths beside a pattern
    (pattern("^[a-z][a-z0-9-]*$", minLength=2, maxLength=4), ["ab", "a-09"], ["a", "abcde"]),
    (pattern("^(a|bcd)$", minLength=2), ["bcd"], ["cd"]),
    # without a grammar that says the same: any string
    (pattern("^(?=x)y$"), ["a"], [1]),
    (pattern("^(a$)?"), ["a"], [1]),
    (pattern("(" * 2000 + "a" + ")+" * 2000), ["b"], [1]),
    (pattern("^(?=x)y$", format="date"), ["2026-12-01"], ["a"]),
])  # fmt: skip
def test_patterns(wanted: Any, good: list[Any], bad: list[Any]) -> None:
    check(wanted, good, bad)


COLOR = {"$defs": {"Color": {"type": "string", "enum": ["red", "blue"]}}}


def objects(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


@pytest.mark.parametrize("wanted,good,bad", [
    (objects(c={"allOf": [{"$ref": "#/$defs/Color"}], "default": "red"}) | COLOR, [{"c": "red"}], [{"c": {}}, {}]),
    ({"$ref": "#/$defs/Color", "enum": ["red"], **COLOR}, ["red"], ["blue"]),
    ({"allOf": [{"type": "string"}, {"minLength": 2}, {"maxLength": 3}]}, ["ab"], ["a", "abcd", {}]),
    ({**objects(a={"const": 1}), "allOf": [objects(b={"const": 2})]}, [{"b": 2, "a": 1}], [{"a": 1}, {"b": 2}]),
    ({"allOf": [{"enum": [1, 2, 3]}, {"enum": [2, 3.0]}, {"type": "integer"}]}, [2, 3], [1]),
    ({"allOf": [objects(a={"type": "number"}), {"properties": {"a": {"type": ["integer", "null"]}}}]},
     [{"a": 1}], [{"a": 1.5}, {"a": None}]),
    ({"items": {"minLength": 1}, "allOf": [{"prefixItems": [{"maxLength": 1}]}]}, [["a"], ["a", "bc"]], [["ab"], [""]]),
    ({"type": "string", "anyOf": [{"minLength": 3}, {"type": "null"}, {"enum": ["a", 1]}]}, ["abc", "a"], ["b", 1]),
])  # fmt: skip
def test_schemas_that_hold_at_once(wanted: Any, good: list[Any], bad: list[Any]) -> None:
    check(wanted, good, bad)


NEXT = {"type": "object", "properties": {"next": {"anyOf": [{"type": "null"}, {"$ref": "#"}]}}, "required": ["next"]}


@pytest.mark.parametrize("wanted,good,bad", [
    ({"minLength": 1}, ["a"], [""]),
    ({"format": "uri"}, ["a", 1, {}], []),
    ({"required": ["b"]}, [{"b": 1}, {"b": 1, "c": 2}], [{}, {"c": 1}]),
    ({"items": {"nullable": True}}, [[1, None]], []),
    ({"x-order": 1}, [{"a": 1}, 1], []),
    ({"type": "object", "properties": {"a": {"type": "null"}, "b": {"type": "null"}},
      "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, [{"a": None}, {"b": None}, {"a": None, "b": None}], [{}]),
    ({"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"const": 1}}}, [1], [2]),
    ({"$ref": "#b", "$defs": {"a": {"$anchor": "b", "const": 1}}}, [1], [2]),
    (NEXT, [{"next": None}, {"next": {"next": None}}], [{"next": 1}, {}]),
    ({"type": "array", "items": False}, [[]], [[1]]),
    ({"type": "array", "items": []}, [[]], []),
    (objects(**{"$ref": {"type": "string"}}), [{"$ref": "x"}], [{}]),
    ({"type": "string", "enum": [1, 2]}, [1, 2], ["1"]),  # a slip that llama-server takes, too
    ({"type": "object", "properties": {"a": {"type": None, "format": None, "const": None}}, "required": None,
      "additionalProperties": None}, [{}, {"a": None}], [{"a": 1}, {"b": 1}]),
    ({**NEXT, "allOf": [{"$ref": "#/$defs/b"}], "$defs": {"b": {"properties": {"next": {"$ref": "#/$defs/b"}}}}},
     [{"next": {"next": None}}], [{}, {"next": 1}]),
])  # fmt: skip
def test_schemas_that_llama_server_takes(wanted: Any, good: list[Any], bad: list[Any]) -> None:
    check(wanted, good, bad)


FLAGS = {"type": "object", "properties": {"ab": {"type": "integer"}, 'q"': {"const": 1}},
         "additionalProperties": {"type": "boolean"}}  # fmt: skip
TUPLE = {"type": "array", "prefixItems": [{"type": "string"}, {"type": "null"}], "items": {"type": "integer"}}


@pytest.mark.parametrize("wanted,good,bad", [
    ({"type": "array", "minItems": 2, "maxItems": 3}, [[1, 2], [1, 2, "x"]], [[1], [1, 2, 3, 4], []]),
    ({"type": "array", "maxItems": 0}, [[]], [[1]]),
    (FLAGS, [{}, {"ab": 1}, {"ab": 1, "a": True}, {"abc": True, "": True}, {"ab": 1, 'q"': 1, "z": True}],
     [{"ab": True}, ('{"ab":1,"ab":true}',), {"a": 1}, ('{"a\\u0062":true}',), {'q"': True}, ('{"ab":1"c":true}',)]),
    (FLAGS | {"required": ["ab"]}, [{"ab": 1}, {"ab": 1, "x": True}], [{}, {"x": True}]),
    (TUPLE, [["a", None], ["a", None, 1, 2]], [["a"], ["a", None, "x"]]),
    (TUPLE | {"minItems": 1, "maxItems": 3}, [["a"], ["a", None], ["a", None, 1]], [[], ["a", None, 1, 2]]),
    (TUPLE | {"minItems": 4}, [["a", None, 1, 2, 3]], [["a", None, 1]]),
])  # fmt: skip
def test_items_and_properties_beside_those_that_are_named(wanted: Any, good: list[Any], bad: list[Any]) -> None:
    check(wanted, good, bad)


def test_a_value_that_leads_to_an_impossible_one_is_left_out() -> None:
    several = {"type": "array", "items": {"$ref": "#/$defs/a"}, "minItems": 1}
    impossible = objects(b={"anyOf": [{"type": "null"}, several]}, c=False)
    wanted = {"anyOf": [{"$ref": "#/$defs/a"}, several, {"const": 1}], "$defs": {"a": impossible}}
    assert "\nroot ::= enum-" in grammar_of_schema(wanted)


LISTS = {"e": {"enum": list(range(2000))}, "p": {"properties": {f"p{i}": {"minLength": 1} for i in range(1000)}}}


@pytest.mark.parametrize("wanted,why", [
    ({"allOf": [{"$ref": "#/$defs/e"}] * 10_000, "$defs": LISTS}, "too large"),
    ({"allOf": [{"$ref": "#/$defs/p"}] * 10_000, "$defs": LISTS}, "too large"),
    ({"enum": list(range(30_000))}, "too many places"),
    (pattern("c" * 150_000), "too large"),
    ({"additionalProperties": True, "properties": {f"{i}{'x' * 90}": True for i in range(10_000)}}, "too large"),
])  # fmt: skip
def test_schemas_that_would_take_minutes_are_refused(wanted: Any, why: str) -> None:
    with pytest.raises(BadValueError, match=why):
        grammar_of_schema(wanted)


def test_thousands_of_optional_properties() -> None:
    wanted = {"type": "object", "properties": {f"p{i}": {"type": "null"} for i in range(2500)}}
    assert "p2499" in grammar_of_schema(wanted)


def test_a_tool_that_refers_to_its_own_schema() -> None:
    tools = [{"type": "function", "function": {"name": name, "parameters": NEXT}} for name in ("a", "b")]
    wanted = choice_of(tools, "required", None, None).schema
    good, bad = ({"name": "b", "arguments": {"next": {"next": x}}} for x in (None, {"name": "b"}))
    check(wanted, [good], [bad])


@pytest.mark.parametrize("wanted,names", [
    (pattern("^(?=x)y$"), ["pattern"]),
    (pattern(r"\S", maxLength=3), ["maxLength"]),
    (pattern("^[a-z]{3}$", maxLength=3, minLength=1), []),
    ({"type": "string", "format": "date", "maxLength": 3}, ["maxLength"]),
    ({"allOf": [pattern("^a"), pattern("b$")]}, ["pattern"]),
    ({"allOf": [objects(a={}) | {"additionalProperties": False}, objects(b={})]}, ["additionalProperties"]),
    (objects(a={}) | {"additionalProperties": False, "required": ["z"]}, ["required"]),
])  # fmt: skip
def test_what_cannot_be_enforced_is_named(wanted: Any, names: list[str]) -> None:
    assert not_enforced(wanted) == names


def test_what_random_grammars_allow_follows_the_schemas() -> None:
    n_checked = 0
    for seed in range(size(120, 5000)):
        r = random.Random(seed)
        wanted = wide_schema(r)
        try:
            grammar = Grammar(grammar_of_schema(wanted))
        except BadValueError as e:
            assert "no value" in str(e) or "at least" in str(e) or "no string" in str(e), (seed, wanted)
            continue
        if not_enforced(wanted):
            continue
        validator = jsonschema.Draft202012Validator(wanted)
        for _ in range(4):
            text = grammar.random_text(r)
            assert grammar.allows(text)
            validator.validate(json.loads(text))
            n_checked += 1
    assert n_checked > 100


def test_a_schema_of_any_shape_is_a_grammar_or_one_sentence() -> None:
    parts: list[Any] = ["#", "string", "^a", "object", 3, -1, None, True, False, [], {}, ["a"], 1.5, "a", ["null", 1]]
    keys = """type properties required additionalProperties items prefixItems minItems maxItems minLength maxLength
        pattern format enum const allOf anyOf oneOf $ref $defs additionalItems $id""".split()  # noqa: SIM905

    def junk(r: random.Random, depth: int) -> Any:
        if depth == 3 or r.random() < 0.4:
            return r.choice(parts)
        inner = [junk(r, depth + 1) for _ in range(r.randint(1, 3))]
        return r.choice([inner, {r.choice(keys): x for x in inner}, {r.choice(keys): x for x in inner}])

    n_bad = 0
    for seed in range(300):
        r = random.Random(seed)
        try:
            grammar_of_schema({r.choice(keys): junk(r, 0) for _ in range(2)})
        except BadValueError as e:
            n_bad += 1
            assert "\n" not in str(e)
    assert 30 < n_bad < 290
