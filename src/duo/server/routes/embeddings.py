"""Routes of a server that was started for vectors: embeddings of texts, and scores of documents."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Callable, Generator, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from duo.errors import BadValueError
from duo.generation.embeddings import normalized
from duo.model import Duo
from duo.server.build_jobs import listed, tokens_of
from duo.server.errors import ApiError
from duo.server.request_body import fields_of
from duo.server.respond import CLIENT_GONE, Json
from duo.server.schemas import EmbeddingFields, RerankFields
from duo.server.sse import first_of
from duo.support.wording import quoted

if TYPE_CHECKING:
    from duo.generation.embeddings import Vectors
    from duo.server.route_table import RouteTable
    from duo.server.service import Service

T = TypeVar("T")
Texts = list[list[int]]  # token ids
# Work in steps of a pass each. Between two of them others have theirs, and what a client has left ends.
Steps = Generator[None, None, T]
FORMATS = ("float", "base64")
N_MOST = 2048  # inputs of one request, as OpenAI takes them
N_STEP = 1 << 13  # tokens that are made of texts at a time, which takes some milliseconds


def add(router: RouteTable, service: Service) -> None:
    async def answer_vectors(request: Request, f: EmbeddingFields) -> Response:
        inputs, norm = _inputs(f), _norm(f, service.settings.norm)
        return await _answer(service, request, lambda duo: _native(duo, inputs, norm))

    async def native(request: Request) -> Response:
        """The vector of a text, or of each of several; without pooling, of each token."""
        return await answer_vectors(request, await fields_of(service, request, EmbeddingFields))

    async def openai(request: Request) -> Response:
        """The same as OpenAI answers it. encoding_format: float or base64. dimensions: the first numbers alone."""
        f = await fields_of(service, request, EmbeddingFields)
        if f.input is None and f.content is not None:
            return await answer_vectors(request, f)
        inputs, norm, form = _inputs(f), _norm(f, service.settings.norm), _form(f)
        name = f.model or service.settings.names[0]
        return await _answer(service, request, lambda duo: _openai(duo, inputs, norm, form, name, f.dimensions))

    async def rerank(request: Request) -> Response:
        """How well each document answers the query, best first."""
        f = await fields_of(service, request, RerankFields)
        query, documents, n_most = _question(f)
        name = f.model or service.settings.names[0]
        return await _answer(service, request, lambda duo: _ranked(duo, f, query, documents, n_most, name))

    for path in ("/embedding", "/embeddings"):
        router.post(path, body=EmbeddingFields, include_in_schema=path == "/embedding")(native)
    router.post("/v1/embeddings", body=EmbeddingFields)(openai)
    for path in ("/v1/rerank", "/rerank", "/v1/reranking", "/reranking"):
        router.post(path, body=RerankFields, include_in_schema=path == "/v1/rerank")(rerank)


async def _answer(service: Service, request: Request, make: Callable[[Duo], Steps[tuple[Any, Texts]]]) -> Response:
    """make: the answer, and the texts that the model has read for it."""
    if not service.settings.embeds:
        raise ApiError(501, "this server writes texts; start one with --embedding or --rerank for vectors")
    ticket = service.enter(1, vectors=True)
    try:
        work = asyncio.create_task(_computed(service, make(service.duo)))
        if not await first_of(work, request.receive):  # what has not begun is not computed
            return Response(status_code=CLIENT_GONE)
        response, texts, seconds = work.result()
        service.metrics.has_read(len(texts), sum(map(len, texts)), seconds)
        return response
    finally:
        ticket.leave()


async def _computed(service: Service, steps: Steps[tuple[Any, Texts]]) -> tuple[Response, Texts, float]:
    """And the seconds that it took, without the waits for the thread."""
    seconds, done = 0.0, None
    while done is None:
        done, took = await service.in_thread(_step, steps, vectors=True)
        seconds += took
    answer, texts = done
    return await service.in_thread(Json, answer), texts, seconds


# ---- what can be checked without the model


def _inputs(f: EmbeddingFields) -> list[Any]:
    """The texts of a request, as they were given. Raises BadValueError."""
    inputs = f.input if f.input is not None else f.content
    if inputs is None:
        raise BadValueError("the request has no input; give a text, token ids, or a list of them")
    return listed(inputs, N_MOST)


def _norm(f: EmbeddingFields, norm: int) -> int:
    """Raises BadValueError."""
    value = norm if f.embd_normalize is None else f.embd_normalize
    if not -1 <= value <= 1000:
        raise BadValueError(f"embd_normalize is {value}; give -1 to 1000")
    return value


def _form(f: EmbeddingFields) -> str:
    """Raises BadValueError."""
    form = f.encoding_format or "float"
    if form not in FORMATS:
        raise BadValueError(f"encoding_format is {quoted(form)}; it is float or base64")
    return form


def _question(f: RerankFields) -> tuple[str, list[str], int]:
    """The query, the documents, and how many are wanted. Raises BadValueError."""
    documents = f.documents if f.documents is not None else f.texts
    if f.query is None or not documents:
        raise BadValueError("the request needs a query and documents; give a text, and a list of texts")
    n_most = len(documents) if f.top_n is None else f.top_n
    if n_most < 1:
        raise BadValueError(f"top_n is {f.top_n}; give 1 or more")
    return f.query, documents, n_most


# ---- in the thread of vectors


def _step(steps: Steps[T]) -> tuple[T | None, float]:
    """What has come of all steps, or None after one that is not the last; and the seconds of this one."""
    began, done = time.monotonic(), None
    try:
        next(steps)
    except StopIteration as end:
        done = end.value
    return done, time.monotonic() - began


def _texts(duo: Duo, parts: Iterable[T], tokens: Callable[[T], list[int]]) -> Steps[Texts]:
    """The texts of a request as token ids. Raises BadValueError."""
    texts: Texts = []
    n_new = 0
    for one in parts:
        if n_new >= N_STEP:
            n_new = 0
            yield
        _ = duo.embedder  # raises if the server ends: many texts take seconds
        texts.append(tokens(one))
        n_new += len(texts[-1])
    return texts


def _of_inputs(duo: Duo, inputs: list[Any]) -> Steps[Texts]:
    """Raises BadValueError."""
    return _texts(duo, inputs, lambda one: tokens_of(duo, _plain(one)))


def _vectors(duo: Duo, texts: Texts, norm: int = 2) -> Steps[list[Vectors]]:
    """Raises BadValueError: one cannot be read."""
    vectors: list[Vectors] = []
    for end in duo.embedder.passes(texts):
        if vectors:
            yield
        vectors += duo.vectors(texts[len(vectors) : end], norm)
    return vectors


def _plain(one: Any) -> Any:
    """{"content": [{"type": "text", "text": ...}]}, as OpenAI's messages have it, as text. Raises BadValueError."""
    if not isinstance(one, dict) or "content" not in one:
        return one
    parts = one["content"]
    items = parts if isinstance(parts, list) else [None]
    texts = [p.get("text") if isinstance(p, dict) and p.get("type") == "text" else None for p in items]
    if not all(isinstance(t, str) for t in texts):
        raise BadValueError("an input's content holds something other than texts; duo reads text only")
    return "".join(map(str, texts))


def _native(duo: Duo, inputs: list[Any], norm: int) -> Steps[tuple[list[dict[str, Any]], Texts]]:
    texts = yield from _of_inputs(duo, inputs)
    own = duo.embedder.pooling == "none"  # of tokens: as the model makes them, as in llama-server
    vectors = yield from _vectors(duo, texts, -1 if own else norm)
    return [{"index": i, "embedding": v.tolist()} for i, v in enumerate(vectors)], texts


def _shortened(duo: Duo, texts: Texts, norm: int, n: int | None) -> Steps[list[Vectors]]:
    """A vector of each text. n: its first numbers alone, with the same norm. Raises BadValueError."""
    if n is None:
        return (yield from _vectors(duo, texts, norm))
    width = duo.embedder.n_out
    if not 1 <= n <= width:
        raise BadValueError(f"dimensions is {n}; the vectors of this model have {width} numbers, give 1 to {width}")
    vectors = yield from _vectors(duo, texts, -1)
    return [normalized(rows[:, :n], norm) for rows in vectors]


def _openai(
    duo: Duo, inputs: list[Any], norm: int, form: str, name: str, n_dimensions: int | None
) -> Steps[tuple[dict[str, Any], Texts]]:
    if duo.embedder.pooling == "none":
        raise BadValueError("OpenAI's embeddings are one vector for each text; start the server with another --pooling")
    texts = yield from _of_inputs(duo, inputs)
    vectors = yield from _shortened(duo, texts, norm, n_dimensions)
    data = []
    for i, rows in enumerate(vectors):
        one: dict[str, Any] = {"object": "embedding", "index": i}
        if form == "base64":
            packed = base64.b64encode(rows[0].astype("<f4").tobytes()).decode()
            data.append({**one, "embedding": packed, "encoding_format": form})
        else:
            data.append({**one, "embedding": rows[0].tolist()})
    n = sum(map(len, texts))
    usage = {"prompt_tokens": n, "total_tokens": n}
    return {"object": "list", "data": data, "model": name, "usage": usage}, texts


def _ranked(
    duo: Duo, f: RerankFields, query: str, documents: list[str], n_most: int, name: str
) -> Steps[tuple[Any, Texts]]:
    """As Jina answers, or, for `texts`, as Hugging Face's text-embeddings-inference."""
    if duo.embedder.pooling != "rank":
        raise ApiError(501, "this server was started for embeddings; start one with --rerank")
    tokens = yield from _texts(duo, documents, lambda d: duo.rank_tokens(query, d))
    vectors = yield from _vectors(duo, tokens)
    scores = [float(v[0, 0]) for v in vectors]
    best = sorted(range(len(scores)), key=lambda i: -scores[i])[:n_most]
    if f.texts is not None and f.documents is None:
        scores_by_text: list[dict[str, Any]] = [{"index": i, "score": scores[i]} for i in best]
        if f.return_text:
            scores_by_text = [{**one, "text": documents[i]} for one, i in zip(scores_by_text, best, strict=True)]
        return scores_by_text, tokens
    n = sum(map(len, tokens))
    return {
        "model": name,
        "object": "list",
        "usage": {"prompt_tokens": n, "total_tokens": n},
        "results": [{"index": i, "relevance_score": scores[i]} for i in best],
    }, tokens
