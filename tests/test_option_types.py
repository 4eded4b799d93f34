"""The types of options: what checks a value, and what a signature shows, without pydantic's and typing's slow ways."""

from __future__ import annotations

import inspect
from typing import Any, get_type_hints

import pytest
from pydantic import TypeAdapter
from pydantic_core import SchemaValidator

from duo import Duo
from duo.errors import BadValueError
from duo.options.check import core_schema
from duo.options.endpoint import EndpointOptions
from duo.options.engine import EngineOptions
from duo.options.generate import GenerateOptions
from duo.options.host import HostOptions
from duo.options.llama_cpp import ChatOptions, DuoOptions
from duo.options.plain_values import UNSURE, plain_value
from duo.options.serve import ServeOptions
from duo.options.train import DraftOptions, HeadOptions
from duo.options.validate import engine_options

TABLES = (EngineOptions, GenerateOptions, HostOptions, ServeOptions, EndpointOptions, HeadOptions, DraftOptions)


def without_metadata(schema: Any) -> Any:
    """What pydantic keeps for JSON schemas says nothing of values."""
    if isinstance(schema, dict):
        return {name: without_metadata(x) for name, x in schema.items() if name not in ("metadata", "serialization")}
    return [without_metadata(x) for x in schema] if isinstance(schema, list) else schema


@pytest.mark.parametrize("table", TABLES, ids=lambda t: t.__name__)
def test_a_value_is_checked_as_pydantic_would(table: type) -> None:
    for name, hint in get_type_hints(table, include_extras=True).items():
        assert core_schema(hint) == without_metadata(TypeAdapter(hint).core_schema), name


@pytest.mark.parametrize(("call", "table"), [(Duo, DuoOptions), (Duo.stream, GenerateOptions),
                                             (Duo.create_chat_completion, ChatOptions)],
                         ids=lambda x: x.__qualname__)  # fmt: skip
def test_a_signature_has_the_types_of_the_table(call: Any, table: type) -> None:
    found, wanted = inspect.signature(call).parameters, get_type_hints(table)
    assert {name: p.annotation for name, p in found.items() if name in wanted} == wanted


def test_the_first_wrong_option_of_the_table_is_named() -> None:
    with pytest.raises(BadValueError, match=r"^n_gpu_layers \(-ngl\) is 'many', but input should be "):
        engine_options({"n_batch": 0, "n_gpu_layers": "many"})
    with pytest.raises(BadValueError, match=r"^n_batch \(-b\) is 0, but input should be greater than or equal to 1; "):
        engine_options({"n_batch": 0})


VALUES: list[Any] = [
    None, True, False, 0, 1, 3, -1, 17, 2**31, 2**60, 10**20, 0.0, 0.5, -2.0, 1.0, 1e6, 1e300, float("inf"),
    float("nan"), "", "0", "1", "-1", "007", "3.0", "0.5", "1e3", " 2", "+4", "12345678901234567890", "auto", "all",
    "none", "on", "off", "true", "async", "f16", "q8_0", "a,b", "1,2", "3/1", "é", "\ud800", b"x", ["a"], ["0"], [1, 2],
    [0.5], [], ("a", "b"), {"a": 1.0}, {1: 0.5}, [[0], [1]], "draft-mtp", "ngram-simple", "127.0.0.1:50052", len,
]  # fmt: skip
ITERATORS: list[Any] = [lambda: iter((1, 2)), lambda: iter(["x", 1, 2]), lambda: (x for x in ("a", "b"))]


@pytest.mark.parametrize("table", TABLES, ids=lambda t: t.__name__)
def test_a_plain_value_is_what_the_core_makes_of_it(table: type) -> None:
    n = 0
    for name, hint in get_type_hints(table, include_extras=True).items():
        core = SchemaValidator(core_schema(hint))
        for iterator in ITERATORS:
            value = iterator()
            assert plain_value(hint, value) is UNSURE and list(value) == list(iterator()), "the core reads it"
        for value in VALUES:
            found = plain_value(hint, value)
            if found is not UNSURE:
                wanted = core.validate_python(value)
                assert (type(found), repr(found)) == (type(wanted), repr(wanted)), (name, value)
                n += 1
    assert n > len(get_type_hints(table))  # not all are left to the core
