"""Routes of a server that was started for vectors: embeddings of texts, and scores of documents."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from duo.errors import BadValueError
from duo.model import Duo
from duo.server.build_jobs import listed, tokens_of
from duo.server.errors import ApiError
from duo.server.request_body import fields_of
from duo.server.respond import Json
from duo.server.schemas import EmbeddingFields, RerankFields
from duo.support.wording import quoted

if TYPE_CHECKING:
    from duo.server.route_table import RouteTable
    from duo.server.service import Service

Texts = list[list[int]]  # token ids
FORMATS = ("float", "base64")


def add(router: RouteTable, service: Service) -> None:
    async def native(request: Request) -> Response:
        """The vector of a text, or of each of several; without pooling, of each token."""
        f = await fields_of(service, request, EmbeddingFields)
        return await _answer(service, lambda duo: _native(duo, f, service.settings.norm))

    async def openai(request: Request) -> Response:
        """The same as OpenAI answers it. encoding_format: float or base64."""
        f = await fields_of(service, request, EmbeddingFields)
        name = service.settings.names[0]
        if f.input is None and f.content is not None:
            return await _answer(service, lambda duo: _native(duo, f, service.settings.norm))
        return await _answer(service, lambda duo: _openai(duo, f, service.settings.norm, name))

    async def rerank(request: Request) -> Response:
        """How well each document answers the query, best first."""
        f = await fields_of(service, request, RerankFields)
        return await _answer(service, lambda duo: _ranked(duo, f, service.settings.names[0]))

    for path in ("/embedding", "/embeddings"):
        router.post(path, body=EmbeddingFields, include_in_schema=path == "/embedding")(native)
    router.post("/v1/embeddings", body=EmbeddingFields)(openai)
    for path in ("/v1/rerank", "/rerank", "/v1/reranking", "/reranking"):
        router.post(path, body=RerankFields, include_in_schema=path == "/v1/rerank")(rerank)


async def _answer(service: Service, make: Callable[[Duo], tuple[Any, Texts]]) -> Response:
    """make: the answer, and the texts that the model has read for it."""
    if not service.settings.embeds:
        raise ApiError(501, "this server writes texts; start one with --embedding or --rerank for vectors")
    ticket = service.enter(1, vectors=True)
    try:
        began = time.monotonic()
        answer, texts = await service.in_thread(make, service.duo, vectors=True)
        service.metrics.has_read(len(texts), sum(map(len, texts)), time.monotonic() - began)
        return Json(answer)
    finally:
        ticket.leave()


def _texts(duo: Duo, f: EmbeddingFields) -> Texts:
    """The texts of a request as token ids. Raises BadValueError."""
    inputs = f.input if f.input is not None else f.content
    if inputs is None:
        raise BadValueError("the request has no input; give a text, token ids, or a list of them")
    texts = []
    for one in listed(inputs):
        _ = duo.embedder  # raises if the server ends: many texts take seconds
        texts.append(tokens_of(duo, _plain(one)))
    return texts


def _plain(one: Any) -> Any:
    """{"content": [{"type": "text", "text": ...}]}, as OpenAI's messages have it, as text. Raises BadValueError."""
    if not isinstance(one, dict) or "content" not in one:
        return one
    parts = one["content"]
    texts = [p.get("text") if isinstance(p, dict) and p.get("type") == "text" else None for p in parts or ()]
    if not isinstance(parts, list) or not all(isinstance(t, str) for t in texts):
        raise BadValueError("an input's content holds something other than texts; duo reads text only")
    return "".join(map(str, texts))


def _norm(f: EmbeddingFields, norm: int) -> int:
    found = norm if f.embd_normalize is None else f.embd_normalize
    if not -1 <= found <= 1000:
        raise BadValueError(f"embd_normalize is {found}; give -1 to 1000")
    return found


def _native(duo: Duo, f: EmbeddingFields, norm: int) -> tuple[list[dict[str, Any]], Texts]:
    texts = _texts(duo, f)
    own = duo.embedder.pooling == "none"  # of tokens: as the model makes them, as in llama-server
    found = duo.vectors(texts, -1 if own else _norm(f, norm))
    return [{"index": i, "embedding": v.tolist()} for i, v in enumerate(found)], texts


def _openai(duo: Duo, f: EmbeddingFields, norm: int, name: str) -> tuple[dict[str, Any], Texts]:
    if duo.embedder.pooling == "none":
        raise BadValueError("OpenAI's embeddings are one vector for each text; start the server with another --pooling")
    form = f.encoding_format or "float"
    if form not in FORMATS:
        raise BadValueError(f"encoding_format is {quoted(form)}; it is float or base64")
    texts = _texts(duo, f)
    data = []
    for i, rows in enumerate(duo.vectors(texts, _norm(f, norm))):
        one: dict[str, Any] = {"object": "embedding", "index": i}
        if form == "base64":
            packed = base64.b64encode(rows[0].astype("<f4").tobytes()).decode()
            data.append({**one, "embedding": packed, "encoding_format": form})
        else:
            data.append({**one, "embedding": rows[0].tolist()})
    n = sum(map(len, texts))
    usage = {"prompt_tokens": n, "total_tokens": n}
    return {"object": "list", "data": data, "model": f.model or name, "usage": usage}, texts


def _ranked(duo: Duo, f: RerankFields, name: str) -> tuple[Any, Texts]:
    """As Jina answers, or, for `texts`, as Hugging Face's text-embeddings-inference."""
    documents = f.documents if f.documents is not None else f.texts
    if f.query is None or not documents:
        raise BadValueError("the request needs a query and documents; give a text, and a list of texts")
    n_most = len(documents) if f.top_n is None else f.top_n
    if n_most < 1:
        raise BadValueError(f"top_n is {f.top_n}; give 1 or more")
    if duo.embedder.pooling != "rank":
        raise ApiError(501, "this server was started for embeddings; start one with --rerank")
    tokens = [duo.rank_tokens(f.query, d) for d in documents]
    scores = [float(v[0, 0]) for v in duo.vectors(tokens)]
    best = sorted(range(len(scores)), key=lambda i: -scores[i])[:n_most]
    if f.texts is not None and f.documents is None:
        found: list[dict[str, Any]] = [{"index": i, "score": scores[i]} for i in best]
        if f.return_text:
            found = [{**one, "text": documents[i]} for one, i in zip(found, best, strict=True)]
        return found, tokens
    n = sum(map(len, tokens))
    return {
        "model": f.model or name,
        "object": "list",
        "usage": {"prompt_tokens": n, "total_tokens": n},
        "results": [{"index": i, "relevance_score": scores[i]} for i in best],
    }, tokens
