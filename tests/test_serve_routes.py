"""The table of routes: what Starlette serves of it, and what FastAPI says of it in /openapi.json."""

from __future__ import annotations

import re
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.testclient import TestClient

from duo.server.app import make_app
from duo.server.route_table import RouteTable, ServedRoute
from duo.server.schemas import TokenizeFields
from duo.server.service import Service
from duo.server.settings import ServerSettings

# Path, method, and fields of the body.
DESCRIBED = {
    ("/health", "get"): None,
    ("/livez", "get"): None,
    ("/v1/models", "get"): None,
    ("/v1/models/{name}", "get"): None,
    ("/props", "get"): None,
    ("/metrics", "get"): None,
    ("/slots", "get"): None,
    ("/slots/{id_slot}", "post"): "SlotFields",
    ("/v1/chat/completions", "post"): "ChatFields",
    ("/v1/completions", "post"): "CompletionFields",
    ("/completion", "post"): "PromptFields",
    ("/infill", "post"): "InfillFields",
    ("/embedding", "post"): "EmbeddingFields",
    ("/v1/embeddings", "post"): "EmbeddingFields",
    ("/v1/rerank", "post"): "RerankFields",
    ("/tokenize", "post"): "TokenizeFields",
    ("/detokenize", "post"): "DetokenizeFields",
    ("/apply-template", "post"): "ChatFields",
    ("/v1/chat/completions/input_tokens", "post"): "ChatFields",
    ("/lora-adapters", "get"): None,
    ("/lora-adapters", "post"): None,
    ("/v1/messages", "post"): "MessagesFields",
    ("/v1/messages/count_tokens", "post"): "MessagesFields",
    ("/v1/responses", "post"): "ResponsesFields",
    ("/v1/responses/input_tokens", "post"): "ResponsesFields",
    ("/duo/trace", "get"): None,
}


def client(**options: Any) -> TestClient:
    """Of a server that has loaded nothing."""
    app = make_app(Service(ServerSettings.of(options, "demo")))
    return TestClient(app, base_url="http://localhost", follow_redirects=False)


def body_of(operation: dict[str, Any]) -> dict[str, Any] | None:
    found = operation.get("requestBody")
    assert found is None or found["required"] is True
    return None if found is None else found["content"]["application/json"]["schema"]


@pytest.mark.parametrize("prefix", ["", "/llm"])
def test_the_description_has_every_route_and_its_fields(prefix: str) -> None:
    here = client(api_prefix=prefix)
    answer = here.get(f"{prefix}/openapi.json")
    assert answer.status_code == 200 and answer.headers["content-type"] == "application/json"
    found = answer.json()
    assert found["info"]["title"] == "duo serve" and found["openapi"].startswith("3.")
    shown = {(path, method): operation for path, of in found["paths"].items() for method, operation in of.items()}
    bodies = {key: body_of(operation) for key, operation in shown.items()}
    assert {key: body and body["title"] for key, body in bodies.items()} == {
        (prefix + path, method): body for (path, method), body in DESCRIBED.items()
    }
    assert len({o["operationId"] for o in shown.values()}) == len(shown)
    assert all(o["description"] for o in shown.values())
    # One of each kind, whole.
    kept = shown[f"{prefix}/tokenize", "post"]
    assert kept["description"] == "Token ids of a text; with_pieces: and their texts, or bytes where they are no UTF-8."
    fields = TokenizeFields.model_json_schema()
    for field in fields["properties"].values():
        assert field.pop("default") is None
    assert body_of(kept) == fields
    assert kept["responses"] == {
        "200": {"description": "Successful Response", "content": {"application/json": {"schema": {}}}}
    }
    named = shown[f"{prefix}/v1/models/{{name}}", "get"]
    assert named["parameters"] == [
        {"name": "name", "in": "path", "required": True, "schema": {"type": "string", "title": "Name"}}
    ]
    assert shown[f"{prefix}/metrics", "get"]["responses"] == {"200": {"description": "Successful Response"}}
    assert here.get(f"{prefix}/openapi.json").content == answer.content  # remembered


def test_what_is_described_is_served() -> None:
    here = client()
    for path, method in DESCRIBED:
        answer = here.request(method, re.sub(r"\{\w+\}", "0", path), json={})
        assert answer.status_code not in (404, 405), (path, method)
        methods = {m for p, m in DESCRIBED if p == path}
        methods |= {"head"} if "get" in methods else set()
        others = {"get", "post", "head", "put", "delete"} - methods
        if path in ("/health", "/v1/models", "/props"):  # these have more routes, which are not described
            continue
        for other in others:
            answer = here.request(other, re.sub(r"\{\w+\}", "0", path))
            assert answer.status_code == 405, (path, other)
            assert set(answer.headers["allow"].lower().split(", ")) <= methods


def test_a_path_that_is_not_there() -> None:
    here = client()
    answer = here.get("/nothing")
    assert answer.status_code == 404
    assert answer.json()["error"]["message"] == "there is no route /nothing"
    redirected = here.get("/livez/")
    assert (redirected.status_code, redirected.headers["location"]) == (307, "http://localhost/livez")
    assert here.get("/slots/0").status_code == 405  # only POST
    assert here.head("/health").status_code == here.get("/health").status_code == 503  # it loads nothing
    for path in ("/livez", "/metrics"):
        answer = here.head(path)
        assert answer.status_code == 200 and not answer.content and int(answer.headers["content-length"])
    assert here.post("/v1/audio/transcriptions").status_code == here.delete("/models").status_code == 501


def test_a_handler_gets_what_it_takes() -> None:
    table = RouteTable("/below")

    @table.get("/both/{a}/{b:path}")
    async def both(b: str, request: Request, a: str) -> Response:
        """Both."""
        return PlainTextResponse(f"{a} {b} {request.query_params['q']}")

    @table.get("/none/{a}")
    async def none() -> Response:
        return PlainTextResponse("none")

    here = TestClient(Starlette(routes=[*table.served()]))
    assert here.get("/below/both/x/y/z?q=1").text == "x y/z 1"
    assert here.get("/below/none/x").text == "none"
    assert here.get("/none/x").status_code == 404
    paths = [r.path for r in table.served() if isinstance(r, ServedRoute)]
    assert paths == ["/below/both/{a}/{b:path}", "/below/none/{a}"]
    described = table.description("title", "1")["paths"]["/below/both/{a}/{b}"]["get"]
    assert {p["name"] for p in described["parameters"]} == {"a", "b"}


def test_figures_name_the_route_of_this_app() -> None:
    service = Service(ServerSettings.of({}, "demo"))
    outer = Starlette()
    outer.mount("/llm", make_app(service))
    here = TestClient(outer, base_url="http://localhost")
    here.get("/llm/v1/models/x")
    here.get("/llm/nothing")
    page = here.get("/llm/metrics").text
    assert 'duo_http_responses_total{route="/v1/models/{name:path}",status="503"} 1.0' in page
    assert 'duo_http_responses_total{route="other",status="404"} 1.0' in page
