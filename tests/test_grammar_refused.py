"""Grammars and schemas that cannot be used are one sentence."""

from typing import Any

import pytest

from duo import Duo, DuoError, _core
from duo.benchmark.doctor import options as model_options
from duo.models.demo import demo_pair


@pytest.mark.parametrize("grammar,why", [
    ('root ::= "a', "unexpected end of input"),
    ("root ::= foo", "Undefined rule identifier 'foo'"),
    ('rot ::= "a"', "no rule named root"),
    ('root ::= root "a"', "a rule begins with itself"),
    ("root ::= " + "(" * 100_000 + '"a"' + ")" * 100_000, "nested 100000 deep"),
    ("root ::= r0\n" + "".join(f"r{i} ::= r{i + 1}\n" for i in range(20_000)), "20001 rules"),
    ("root ::= <no-such-token>", "no-such-token"),
    (" ", "at least a rule named root"),
    ('root ::= "\0"', "NUL"),
    ("[" * 1_000_000, "name"),  # in a time that is linear, as all of these
    ('root ::= "' + "a" * 2000 + '"{2000}', "4000000 elements"),
    ("".join(f'r{i} ::= "{"a" * 200}"{{2000}}\n' for i in range(9)), "repetitions make"),
    ('root ::= "a"{' + "0" * 5000 + "1,}x", "Undefined rule identifier 'x'"),
])  # fmt: skip
def test_a_bad_grammar_is_one_sentence(
    duo_pair: Duo, capfd: pytest.CaptureFixture[str], grammar: str, why: str
) -> None:
    with pytest.raises(DuoError) as e:
        duo_pair.stream("Once", grammar=grammar)
    assert why in str(e.value)
    assert "\n" not in str(e.value)
    assert capfd.readouterr().err == ""  # llama.cpp prints what it does not understand


@pytest.mark.parametrize("wanted,why", [
    ("{", "is not JSON"),
    ("[1]", "is not a schema"),
    ({"type": "widget"}, "widget"),
    ({"$ref": "#/$defs/gone"}, "gone"),
    ({"$ref": "https://example.org/schema.json"}, "remote"),
    ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}, "'#/$defs/a' refers to itself"),
    ({"$ref": {"a": 1}}, "is not a string"),
    ({"allOf": [{"type": "string"}, {"type": "integer"}]}, "no value is of the types string and integer"),
    ({"allOf": [{"enum": [1]}, {"const": 2}]}, "no value is in both enums"),
    ({"type": "object", "properties": {"a": False}, "required": ["a"]}, "no value follows the schema false"),
    ({"type": "array", "items": False, "minItems": 1}, "no value can be the one after 0"),
    ({"type": "string", "pattern": "a^b"}, "the pattern a^b has ^ or $ at a place where neither can hold"),
    ({"type": "string", "pattern": "^(a$b)$"}, "has ^ or $ at a place"),
    ({"type": "string", "pattern": "^*a$"}, "nothing to repeat"),
    ({"type": "string", "pattern": "^a)$"}, "unbalanced parenthesis"),
    ({"type": "string", "pattern": "^abc$", "maxLength": 2}, "no string matches ^abc$"),
    ({"$ref": "#/$defs/a0", "$defs": {f"a{i}": {"allOf": [{"$ref": f"#/$defs/a{i + 1}"}] * 2} for i in range(40)}
      | {"a40": {}}}, "too large"),
    ({"anyOf": [{"minLength": i} for i in range(200)], "oneOf": [{"maxLength": i} for i in range(200)]}, "too large"),
    ({"type": "string", "pattern": "^(a$"}, "is not a regular expression"),
    ({"type": "string", "minLength": 100_000}, "the JSON schema (-j) makes a grammar that is too large; lower"),
    ({"type": "array", "items": {}, "minItems": 2**31 - 1}, "too large"),
    ({"type": "string", "pattern": "^a{1000000000}$"}, "too large"),
    ({"type": "string", "pattern": "^" + "[" * 100_000 + "$"}, "unterminated"),
    ({"prefixItems": [{"type": "string", "maxLength": 2000 - i} for i in range(200)]}, "too large"),
    ({"type": "string", "minLength": 5, "maxLength": 4}, "5 characters at least and 4 at most"),
    ({"type": "string", "minLength": -1}, "-1 is no count"),
    ({"const": float("nan")}, "is not JSON"),
    ({"x": {1, 2}}, "is not JSON"),
])  # fmt: skip
def test_a_bad_schema_is_one_sentence(duo_pair: Duo, wanted: Any, why: str) -> None:
    with pytest.raises(DuoError) as e:
        duo_pair.stream("Once", json_schema=wanted)
    assert why in str(e.value)
    assert "\n" not in str(e.value)


def test_a_grammar_and_a_schema_at_once_are_refused(duo_pair: Duo) -> None:
    with pytest.raises(DuoError, match="choose one"):
        duo_pair.stream("Once", grammar='root ::= "a"', json_schema={})


def test_a_grammar_that_cannot_be_used_does_not_switch_the_one_before_off() -> None:
    """Clients of a host name grammars in turn, and each must hold for its own text."""
    p = _core.Probe(model_options(str(demo_pair()[0]), 1, [], 512))
    text = p.tokenize("Once")
    p.decode(text)

    def best(grammar: str) -> list[tuple[int, float]]:
        s = _core.Sampling()
        s.temp, s.grammar, s.n_prompt = 0.0, grammar, len(text)
        return p.candidates(len(text) - 1, s, text, 1)

    free, held = best(""), best('root ::= "yes"')
    assert held != free
    for _ in range(2):
        with pytest.raises(DuoError):
            best("root ::= nothing")
        assert best('root ::= "yes"') == held
    with pytest.raises(DuoError):
        best("root ::= nothing")
    assert best("") == free
