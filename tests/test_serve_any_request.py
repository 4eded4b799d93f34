"""Requests of any kind that the description of `duo serve` allows, and others: none makes the server fail."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from conftest import HANG_S
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from late import Late
from served import TALE, Server
from sizes import size

pytestmark = pytest.mark.full

schemathesis = Late("schemathesis")

FIELDS = st.sampled_from(
    ["temperature", "top_k", "top_p", "n_predict", "seed", "stop", "grammar", "json_schema", "logit_bias", "n_probs",
     "messages", "tools", "tool_choice", "response_format", "n", "id_slot", "draft", "mode", "stream_options", "input",
     "system", "chat_template_kwargs", "input_extra", "response_fields", "dry_sequence_breakers"]
)  # fmt: skip


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda x: st.lists(x, max_size=3) | st.dictionaries(st.text(max_size=5), x, max_size=3),
    max_leaves=5,
)


@pytest.mark.daily  # the other test has any values of the fields
@pytest.mark.slow
def test_no_request_makes_the_server_fail(server: Server) -> None:
    schema = schemathesis.openapi.from_url(server.url + "/openapi.json")
    operations = [op.ok() for op in schema.get_all_operations()]
    assert len(operations) > 15

    for operation in operations:

        @given(case=operation.as_strategy())
        @settings(
            max_examples=size(3, 60), deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck),
            derandomize=True, database=None,
        )  # fmt: skip
        def check(case: Any) -> None:
            if isinstance(case.body, dict):  # else a text may be as long as the context
                case.body = {**case.body, "max_tokens": 2, "n_predict": 2, "max_completion_tokens": 2}
            answer = case.call(base_url=server.url, timeout=HANG_S)
            assert answer.status_code < 500 or answer.status_code == 501, (case.body, answer.text)
            assert "Traceback" not in answer.text

        check()


@given(fields=st.dictionaries(FIELDS, VALUES, max_size=3), path=st.integers(0, 6))
@settings(
    max_examples=size(20, 600), deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)
def test_no_value_of_a_field_makes_the_server_fail(server: Server, fields: dict[str, Any], path: int) -> None:
    paths = ["/completion", "/v1/completions", "/v1/chat/completions", "/v1/messages", "/v1/responses", "/infill",
             "/apply-template"]  # fmt: skip
    body = {"prompt": "a", "messages": TALE, "input": "a", **fields, "max_tokens": 2, "n_predict": 2}
    data = json.dumps(body).encode("utf-8", "replace")
    answer = httpx.post(server.url + paths[path], content=data, timeout=HANG_S)
    assert answer.status_code in (200, 400, 429) or (path == 5 and answer.status_code == 501), (fields, answer.text)
