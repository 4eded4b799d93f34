"""Routes that count and translate, and write nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from duo.errors import BadValueError
from duo.model import Duo
from duo.server.build_jobs import tokens_of
from duo.server.chat_options import prompt_of
from duo.server.request_body import fields_of
from duo.server.respond import Json
from duo.server.schemas import ChatFields, DetokenizeFields, Fields, TokenizeFields

if TYPE_CHECKING:
    from duo.server.route_table import RouteTable
    from duo.server.service import Service

N_PIECES = 1 << 18  # each takes 300 bytes until the answer is sent


def add(router: RouteTable, service: Service) -> None:
    @router.post("/tokenize", body=TokenizeFields)
    async def tokenize(request: Request) -> Response:
        """Token ids of a text; with_pieces: and their texts, or bytes where they are no UTF-8."""
        f = await fields_of(service, request, TokenizeFields)
        return await _answer(service, f, lambda duo: {"tokens": _tokens(duo, f)})

    @router.post("/detokenize", body=DetokenizeFields)
    async def detokenize(request: Request) -> Response:
        """The text of token ids."""
        f = await fields_of(service, request, DetokenizeFields)
        return await _answer(service, f, lambda duo: {"content": duo.decode(f.tokens or [], special=True)})

    @router.post("/apply-template", body=ChatFields)
    async def apply_template(request: Request) -> Response:
        """The prompt that a conversation becomes."""
        f = await fields_of(service, request, ChatFields)
        return await _answer(service, f, lambda duo: {"prompt": prompt_of(f, duo, service.settings).text})

    async def input_tokens(request: Request) -> Response:
        """How many tokens a conversation has."""
        f = await fields_of(service, request, ChatFields)
        return await _answer(service, f, lambda duo: {"input_tokens": len(prompt_of(f, duo, service.settings).tokens)})

    for path in ("/v1/chat/completions/input_tokens", "/chat/completions/input_tokens"):
        router.post(path, body=ChatFields, include_in_schema=path.startswith("/v1"))(input_tokens)


async def _answer(service: Service, f: Fields, make: Callable[[Duo], Any]) -> Response:
    duo = service.check_ready()
    return await service.in_thread(lambda: Json(make(duo)), fields=f)  # encoded there: it may be long


def _tokens(duo: Duo, f: TokenizeFields) -> list[Any]:
    if f.content is None:
        return []
    parse = True if f.parse_special is None else f.parse_special
    ids = tokens_of(duo, f.content, add_special=bool(f.add_special), parse_special=parse) if f.content else []
    if not f.with_pieces:
        return ids
    if len(ids) > N_PIECES:
        raise BadValueError(
            f"the text has {len(ids)} tokens, and with_pieces takes at most {N_PIECES} at a time; send a part of it"
        )
    return [{"id": i, "piece": _piece(duo.local_model.piece(i, True))} for i in ids]


def _piece(data: bytes) -> str | list[int]:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return list(data)
