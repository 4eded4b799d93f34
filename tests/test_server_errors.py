"""What clients are told of a bad field: its name, and nothing of command lines."""

import pytest

from duo.errors import BadValueError
from duo.options.tables import GENERATE_OPTIONS
from duo.options.validate import generate_options
from duo.server.errors import FIELDS, as_api_error


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
