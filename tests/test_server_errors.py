"""What clients are told of a bad field: its name, and nothing of command lines."""

from typing import Any

import pytest

from duo.errors import BadValueError
from duo.options.tables import GENERATE_OPTIONS
from duo.options.validate import generate_options
from duo.server.errors import FIELDS, ApiError, as_api_error
from duo.server.request_body import checked
from duo.server.routes.anthropic import as_chat
from duo.server.schemas import MessagesFields, PromptFields


@pytest.mark.parametrize("name", sorted(GENERATE_OPTIONS.keys() - {"json_schema"}))  # any value may be one
def test_a_bad_field_is_named_without_an_option(name: str) -> None:
    with pytest.raises(BadValueError) as e:
        generate_options({name: object()})
    message = as_api_error(e.value).message
    assert message.startswith(f"{FIELDS.get(name, name)} is ") and " (-" not in message and "duo run" not in message


def test_names_of_two_fields_in_one_sentence() -> None:
    with pytest.raises(BadValueError) as e:
        generate_options({"n_draft": 2, "n_draft_min": 4})
    assert as_api_error(e.value).message == "speculative.n_min is 4, above speculative.n_max, 2"


def test_what_the_operator_may_change_stays() -> None:
    sentence = "lora names adapter 4, and there are 0 (--lora); they count from 0"
    assert as_api_error(BadValueError(sentence)).message == sentence


def test_whole_numbers_may_be_written_with_a_point() -> None:
    fields = checked(PromptFields, {"n_predict": 100.0, "seed": 1.0, "top_k": 40, "n": None})
    assert (fields.n_predict, fields.seed, fields.top_k, fields.n) == (100, 1, 40, None)
    assert isinstance(fields.n_predict, int)
    for wrong in (1.5, True, "1", 1e300):
        with pytest.raises(ApiError, match="Field 'n_predict': input should be a valid integer, and it is"):
            checked(PromptFields, {"n_predict": wrong})


@pytest.mark.parametrize("kind", [[], {}, 5, "some"], ids=str)
def test_a_choice_of_tools_of_an_unknown_type(kind: Any) -> None:
    fields = MessagesFields(messages=[], tools=[{"name": "x", "input_schema": {}}], tool_choice={"type": kind})
    with pytest.raises(BadValueError, match="its type is auto, any, tool or none"):
        as_chat(fields)
