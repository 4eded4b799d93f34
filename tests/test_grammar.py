"""Grammars and JSON schemas: the text follows them, whoever guesses along."""

import json
import random
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any, Literal

import jsonschema
import pydantic
import pytest
from random_schemas import schema
from sizes import mostly_daily, size

from duo import Duo, DuoError
from duo.generation.begin import checked
from duo.generation.job import sampling, speculation
from duo.gguf_tools.switched_duo import SwitchedDuo
from duo.grammar.schema import not_enforced, schema_to_gbnf
from duo.models.demo import demo_pair

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer"},
        "tags": {"type": "array", "items": {"enum": ["old", "young", 'quo"te']}, "maxItems": 4},
    },
    "required": ["name", "age", "tags"],
}


class Tree(pydantic.BaseModel):
    value: bool
    left: "Tree | None" = None


SENTENCES = 'root ::= ([A-Z] [a-z]+ (" " [a-z]+){2,6} ". "){1,4}'


@pytest.mark.slow
@pytest.mark.random
def test_random_schemas_are_kept_to(duo_pair: Duo) -> None:
    for i in range(size(12, 1000)):
        r = random.Random(i)
        wanted = schema(r)
        options = {"temperature": r.choice([0, 0.8, 1.5]), "top_k": r.choice([0, 40]), "seed": i}
        text = duo_pair.generate("Once", json_schema=wanted, max_tokens=480, **options)
        assert text.finish_reason == "stop", (i, wanted)
        jsonschema.validate(json.loads(text.text), wanted)


SHAPES: list[dict[str, Any]] = [{"json_schema": PERSON}, {"grammar": SENTENCES}]
SAMPLINGS: list[dict[str, Any]] = [
    {"temperature": 0},
    {"seed": 1},
    {"seed": 2, "top_k": 0, "temperature": 1.3},
    {"seed": 3, "repeat_penalty": 1.3},
]


# A schema is a grammar by the time a sampler sees it.
@pytest.mark.parametrize(
    ("shape", "options"),
    mostly_daily(
        product(SHAPES, SAMPLINGS),
        [(SHAPES[0], SAMPLINGS[3]), (SHAPES[1], SAMPLINGS[0])],
    ),
)
def test_every_mode_writes_the_same_text(strict_pair: Duo, shape: Any, options: Any) -> None:
    def written(**how: Any) -> tuple[str, tuple[int, ...]]:
        r = strict_pair.generate("Once upon a time", max_tokens=120, **shape, **options, **how)
        return r.text, r.tokens

    plain = written(mode="plain")
    assert written(mode="sync", n_draft=3) == plain
    assert written(mode="async") == plain
    assert written(mode="async", draft_tree="dynamic", n_draft=12) == plain
    assert written(mode="async", draft_tree=[[0], [1], [0, 0], [0, 1]]) == plain
    assert written(spec_type="draft-simple,ngram-map-k", ngram_size_n=2) == plain


def test_the_draft_is_held_to_the_grammar_too() -> None:
    with SwitchedDuo(n_ctx=512, always=True) as d:
        t = d.generate("Once", json_schema=PERSON, temperature=0, mode="sync", n_draft=3, max_tokens=100).timings
    assert t["draft_n"] > 5
    assert t["draft_acceptance"] > 0.4  # the models' own guesses have hardly a token of JSON among them


def test_a_resumed_text_continues_in_its_grammar(strict_pair: Duo) -> None:
    """As after a lost connection: the prompt then brings tokens that were generated."""
    d = strict_pair
    options = {"json_schema": PERSON, "seed": 5, "max_tokens": 120}
    whole = d.generate("Once", **options)
    job = checked(d.session, "Once", options, "generate")
    for n in (1, len(whole.tokens) // 2, len(whole.tokens) - 2):
        s = sampling(job.options, 5)
        s.n_prompt = len(job.tokens)
        text = d.engine.begin(
            prompt=[*job.tokens, *whole.tokens[:n]],
            n_predict=120 - n,
            sampling=s,
            plan=speculation(job.options),
            stop=[],
            n_logprobs=-1,
        )
        tokens = []
        while not (chunk := d.engine.next(text, 1_000_000)) or not chunk.finish:
            tokens += [chunk.token] if chunk else []
        assert (*whole.tokens[:n], *tokens) == whole.tokens


def test_the_text_ends_when_the_grammar_is_complete(duo_pair: Duo) -> None:
    for options in ({}, {"ignore_eos": True}):
        r = duo_pair.generate("Once", grammar='root ::= "yes" | "no"', max_tokens=50, **options)
        assert r.text in ("yes", "no")
        assert r.finish_reason == "stop"
    assert duo_pair.generate("Once", grammar='root ::= ""', max_tokens=5).text == ""


def test_the_text_is_kept_if_no_token_fits_the_grammar(duo_pair: Duo) -> None:
    comma = duo_pair.tokenize("b", add_bos=False)
    bias = {t: float("-inf") for t in range(duo_pair.target.n_vocab) if b"b" in duo_pair.target.piece(t)}
    assert comma[0] in bias
    with pytest.raises(DuoError, match="the grammar is not complete") as e:
        duo_pair.generate("Once", grammar='root ::= "aab"', logit_bias=bias)
    assert e.value.result is not None
    assert e.value.result.text == "aa"
    assert duo_pair.generate("Once", grammar='root ::= "aab"').text == "aab"


def test_control_tokens_and_broken_characters_are_no_text(duo_pair: Duo) -> None:
    r = duo_pair.generate("Once", grammar='root ::= "<|im_start|>x"')
    assert r.text == "<|im_start|>x"
    assert duo_pair.tokenize("<|im_start|>", special=True)[-1] not in r.tokens
    for seed in range(8):
        r = duo_pair.generate(
            "Once", grammar="root ::= [^ -~]{6}", temperature=1e5, top_k=0, top_p=1, min_p=0, seed=seed
        )
        assert len(r.text) == 6
        assert "\ufffd" not in r.text


def test_references_also_to_the_schema_itself(duo_pair: Duo) -> None:
    tree = {
        "$defs": {
            "my.node_1": {
                "type": "object",
                "properties": {
                    "v": {"enum": [1, 2]},
                    "next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/my.node_1"}]},
                },
                "required": ["v", "next"],
            },
            "string": {"const": "s"},
        },
        "type": "array",
        "prefixItems": [{"$ref": "#/$defs/my.node_1"}, {"type": "string", "maxLength": 3}, {"$ref": "#/$defs/string"}],
    }
    for seed in range(size(3, 5)):
        # So hot that the list soon ends.
        hot = {"temperature": 1e3, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
        r = duo_pair.generate("Once", json_schema=json.dumps(tree), max_tokens=400, seed=seed, **hot)
        jsonschema.validate(json.loads(r.text), tree)


def test_a_pydantic_model_is_a_schema(duo_pair: Duo) -> None:
    class Frog(pydantic.BaseModel):
        legs: int
        colour: Literal["green", "brown"] | None

    r = duo_pair.generate("Once", json_schema=Frog, max_tokens=100, temperature=0)
    assert Frog.model_validate_json(r.text).legs >= 0 or "-" in r.text


def test_a_recursive_pydantic_model_is_a_schema(duo_pair: Duo) -> None:
    wanted = Tree.model_json_schema()
    assert {"$ref", "$defs"} <= wanted.keys()
    for seed in range(3):
        hot = {"temperature": 1e3, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
        r = duo_pair.generate("Once", json_schema=Tree, max_tokens=400, seed=seed, **hot)
        if r.finish_reason == "stop":
            Tree.model_validate_json(r.text)
        assert r.text.startswith("{")


def test_an_empty_schema_allows_every_value(duo_pair: Duo) -> None:
    for wanted in ({"type": "array", "items": {}}, {"type": "array", "items": {"title": "X"}}):
        rules = schema_to_gbnf(wanted)
        for kind in ("string", "number", "boolean", "null"):
            assert f"{kind} ::=" in rules
        duo_pair.stream("Once", json_schema=wanted).close()
    assert "boolean ::=" in schema_to_gbnf({"type": "object", "properties": {"a": {"title": "X"}}, "required": ["a"]})


@pytest.mark.parametrize("wanted", [
    {"type": "object", "properties": {"": {"type": "null"}}, "required": [""]},
    {"type": "object", "properties": {"": {"type": "null"}, "empty": {"enum": [1]}}, "required": ["", "empty"]},
])  # fmt: skip
def test_a_property_without_a_name(duo_pair: Duo, wanted: dict[str, Any]) -> None:
    text = duo_pair.generate("Once", json_schema=wanted, max_tokens=60, temperature=0).text
    jsonschema.validate(json.loads(text), wanted)


def test_keywords_that_are_not_enforced_are_known() -> None:
    wanted = {"properties": {"minimum": {"type": "integer", "maximum": 3}}, "not": {}, "default": {"multipleOf": 2}}
    assert not_enforced(wanted) == ["maximum", "not"]
    assert not_enforced(PERSON) == []
    assert not_enforced({"type": "string", "maxLength": 2**31 - 1}) == ["maxLength"]  # llama.cpp's limit is 2000
    assert not_enforced({"type": "array", "items": {}, "maxItems": 2000}) == []


def test_a_maximum_that_no_text_reaches_is_taken_as_none() -> None:
    """Databases and languages write 2147483647 into schemas. Written out, it would take all memory."""
    for limits in ({"type": "string", "maxLength": 2**31 - 1}, {"type": "array", "items": {}, "maxItems": 1e9}):
        free = {k: v for k, v in limits.items() if not k.startswith("max")} | {"minLength": 0, "minItems": 0}
        assert schema_to_gbnf(limits) == schema_to_gbnf(free)


def test_llama_cpp_reads_the_schemas_grammar_as_an_object_of_its_own(duo_pair: Duo) -> None:
    from llama_cpp import LlamaGrammar

    made = LlamaGrammar.from_string(schema_to_gbnf({"enum": ["one", "two"]}))
    assert duo_pair.generate("Once", grammar=made).text.strip() in ('"one"', '"two"')


def test_the_command_line_takes_texts_and_files(tmp_path: Path, run: Callable[..., tuple[int, str, str]]) -> None:
    gbnf, wanted = tmp_path / "g.gbnf", tmp_path / "s.json"
    gbnf.write_text('root ::= "yes" | "no"\n')
    wanted.write_text(json.dumps(PERSON | {"minProperties": 2}))
    quiet = ("-p", "Once", "--no-display-prompt", "-n", 200, "-m", demo_pair()[0])
    assert run(*quiet, "--grammar-file", gbnf)[1].strip() in ("yes", "no")
    assert run(*quiet, "--grammar", gbnf.read_text())[1].strip() in ("yes", "no")
    code, out, err = run(*quiet, "-jf", wanted)
    assert code == 0
    jsonschema.validate(json.loads(out), PERSON)
    assert err.startswith("duo: minProperties in the JSON schema is not enforced")
    json.loads(run(*quiet, "-j", json.dumps(PERSON))[1])
    for args, why in (
        (("-jf", tmp_path / "gone"), "cannot be read"),
        (("-j", "{}", "-jf", wanted), "both --json-schema and --json-schema-file"),
        (("--grammar", "root"), "cannot be read"),
        (("--grammar-file", demo_pair()[0]), "is not UTF-8"),
    ):
        code, out, err = run(*quiet, *args)
        assert (code, out, err.count("\n")) == (1, "", 1)
        assert why in err
