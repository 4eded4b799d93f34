"""The routes of a router: lists and loads models, and hands every other request to the model that it names."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

import httpx2
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from duo import __version__
from duo.server.errors import ApiError
from duo.server.middleware import OF_ANTHROPIC
from duo.server.request_body import fields_of
from duo.server.respond import CLIENT_GONE, Json
from duo.server.router.event_stream import EventStream
from duo.server.routes.about import CREATED
from duo.server.routes.files import FolderFiles
from duo.server.schemas import Fields
from duo.server.sse import encoded, first_of
from duo.server.visitors import READING, PageHeaders

if TYPE_CHECKING:
    from duo.server.route_table import RouteTable
    from duo.server.router.child import ModelProcess
    from duo.server.router.fleet import Member
    from duo.server.router.service import Router

# Of one hop (RFC 9110), or made anew for the next.
NOT_HANDED_ON = (
    "host", "connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "proxy-authorization",
    "proxy-authenticate", "content-length", "authorization", "x-api-key", "origin", "sec-fetch-site", "expect",
)  # fmt: skip
# Of an answer, beside those: this server adds its own.
OWN = ("date", "x-request-id", "vary")
METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]
ON = ("true", "1")


def add(router: RouteTable, service: Router) -> None:
    async def health() -> Response:
        """200: requests are served."""
        if not service.is_ready:
            raise service.not_ready()
        return Json({"status": "ok"})

    for path in ("/health", "/v1/health", "/livez"):
        router.get(path, include_in_schema=path == "/health")(health)

    async def models(request: Request) -> Response:
        """All models and what has become of them; a loaded one says more of itself. reload=1: looks for models again,
        and unloads those that are gone or are to be loaded otherwise."""
        if request.query_params.get("reload", "").lower() in ON and _may_load(service, request):
            await service.reload()
        shown = [m for m in service.fleet.members.values() if not m.source.is_hidden]
        entries = await asyncio.gather(*(_listed(service, m) for m in shown))
        return Json({"object": "list", "data": list(entries)})

    for path in ("/v1/models", "/models"):
        router.get(path, include_in_schema=path.startswith("/v1"))(models)

    @router.get("/v1/models/{name:path}")
    async def model(name: str) -> Response:
        """One model by its name."""
        return Json(await _listed(service, service.fleet.find(name)))

    @router.post("/models/load", body=Fields)
    async def load(request: Request) -> Response:
        """Loads a model, and answers when it is there."""
        f = await fields_of(service, request, Fields)
        await service.fleet.load(service.fleet.find(f.model), anyway=True)
        return Json({"success": True})

    @router.post("/models/unload", body=Fields)
    async def unload(request: Request) -> Response:
        """Ends the process of a model."""
        f = await fields_of(service, request, Fields)
        await service.fleet.unload(service.fleet.find(f.model))
        return Json({"success": True})

    @router.get("/models/sse", response_class=Response)
    async def events() -> Response:
        """What becomes of the models, as it happens."""
        if not service.is_ready:
            raise service.not_ready()
        return EventStream(service)

    @router.get("/metrics", response_class=Response)
    async def metrics(request: Request) -> Response:
        """The router's own figures; model=NAME: those of a model."""
        if not service.settings.metrics:
            raise ApiError(501, "/metrics is off; start the server without --no-metrics")
        if "model" in request.query_params:
            return await _handed_on(service, request)
        return Response(await service.metrics_page(), media_type="text/plain; version=0.0.4")

    @router.get("/props")
    async def props(request: Request) -> Response:
        """What the router does; model=NAME: the properties of a model."""
        if "model" in request.query_params:
            return await _handed_on(service, request)
        return Json(
            {
                "role": "router",
                "max_instances": service.fleet.n_most,
                "models_autoload": service.autoload,
                # For clients that want these of any server, as from llama-server's router.
                "model_alias": service.settings.names[0],
                "model_path": "none",
                "default_generation_settings": {"params": {}, "n_ctx": 0},
                "ui_settings": service.settings.page.given,
                "webui_settings": service.settings.page.given,
                "build_info": f"duo {__version__}",
            }
        )

    files = FolderFiles(service.settings.files)

    async def others(request: Request, path: str) -> Response:
        return await files.find(request, path) or await _handed_on(service, request)

    router.add("/{path:path}", others, methods=METHODS, include_in_schema=False)


async def _listed(service: Router, member: Member) -> dict[str, Any]:
    source = member.source
    one: dict[str, Any] = {
        "id": source.name, "object": "model", "created": CREATED, "owned_by": "duo", "path": source.path,
        "status": member.status,
    }  # fmt: skip
    if member.is_there and member.child is not None:  # who only lists does not use it
        one = {**(await member.child.about() or {}), **one}
    return one


def _named(service: Router, request: Request) -> Member:
    """The model that a request names; it may name none if there is only one. Raises ApiError."""
    name = request.query_params.get("model")
    if name is None and (body := request.scope["duo.body"]):
        with suppress(ValueError, RecursionError):
            fields = json.loads(body)
            name = fields.get("model") if isinstance(fields, dict) else None
    if name is not None:
        return service.fleet.find(name)
    loaded = [m for m in service.fleet.members.values() if m.is_there]
    only = loaded if len(loaded) == 1 else list(service.fleet.members.values())
    if len(only) != 1:
        raise ApiError(400, "model name is missing from the request; give one of those that /v1/models lists")
    return only[0]


def _may_load(service: Router, request: Request) -> bool:
    """What pages may send to change something has been checked."""
    return request.method not in READING or service.settings.visitors.may_load(PageHeaders.of(request.headers.raw))


async def _handed_on(service: Router, request: Request) -> Response:
    member = _named(service, request)
    autoload = request.query_params.get("autoload")
    loads = service.autoload if autoload is None else autoload.lower() in ON
    loads = loads and _may_load(service, request)
    stack = ExitStack()
    stack.enter_context(service.inside())
    work = asyncio.create_task(answer_of(service, member, request, stack, loads=loads))
    is_sent = False
    try:
        if not await first_of(work, request.receive):
            return Response(status_code=CLIENT_GONE)
        answer = work.result()
        request.scope.pop("duo.body")  # the model has it
        is_sent = True
        return answer
    finally:
        if not is_sent:
            stack.close()
            if work.done() and not work.cancelled() and work.exception() is None:
                await work.result().end()


async def answer_of(service: Router, member: Member, request: Request, stack: ExitStack, *, loads: bool) -> _Passed:
    """The beginning of the model's answer. stack: is closed when the answer has been sent on. Raises ApiError.

    A process that has died without an answer is started once more. If it was the request that ended it, it will not be
    better the next time.
    """
    if not loads and not member.is_there:
        raise ApiError(400, f"the model {member.source.name} is not loaded; POST /models/load loads it")
    for is_last in (not loads, True):
        if loads:
            await service.fleet.load(member)
        with ExitStack() as using:
            child = using.enter_context(service.fleet.used(member))
            try:
                answer = await child.http.send(_sent_on(service, request, child), stream=True)
            except httpx2.InvalidURL as e:
                raise ApiError(400, f"the path cannot be handed on ({e}); correct it") from None
            except httpx2.HTTPError as e:
                died = await child.has_died()
                if died and not is_last:
                    continue
                why = child.last_line if died else type(e).__name__
                raise ApiError(502, f"the model {member.source.name} gave no answer ({why}); try again") from None
            stack.enter_context(using.pop_all())
            path = request.scope["path"].removeprefix(service.settings.api_prefix)
            return _Passed(answer, stack, of_anthropic=path.startswith(OF_ANTHROPIC))
    raise AssertionError


def _sent_on(service: Router, request: Request, child: ModelProcess) -> httpx2.Request:
    headers = [(k, v) for k, v in request.scope["headers"] if k.decode("latin-1") not in NOT_HANDED_ON]
    path = request.scope["raw_path"].decode("latin-1").removeprefix(service.settings.api_prefix)
    query = request.scope.get("query_string", b"").decode("latin-1")
    url = f"{path}?{query}" if query else path
    if not (body := request.scope["duo.body"]):
        return child.http.build_request(request.method, url, headers=headers)
    headers.append((b"content-length", str(len(body)).encode()))
    return child.http.build_request(request.method, url, headers=headers, content=_SentOnce(body))


class _SentOnce:
    """A body that nobody holds when it has been sent, while its request lives as long as the answer."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        body, self._body = self._body, b""
        yield body


class _Passed(StreamingResponse):
    """Sends an answer on as it comes, and ends it when the client goes."""

    def __init__(self, answer: httpx2.Response, stack: ExitStack, *, of_anthropic: bool) -> None:
        """stack: is closed when all has been sent. of_anthropic: the shape of an error in a stream."""
        self._answer, self._stack, self._of_anthropic = answer, stack, of_anthropic
        super().__init__(self._parts(), answer.status_code)
        left_out = (*NOT_HANDED_ON, *OWN)
        headers = [(k, v) for k, v in answer.headers.raw if k.lower().decode("latin-1") not in left_out]
        self.raw_headers = [(k.lower(), v) for k, v in headers]

    async def _parts(self) -> AsyncIterator[bytes]:
        try:
            async for part in self._answer.aiter_raw():
                yield part
        except httpx2.HTTPError:
            if not self._answer.headers.get("content-type", "").startswith("text/event-stream"):
                raise  # the connection is cut, so that nobody takes this for the whole answer
            why = ApiError(502, "the model's process has ended; try again")
            yield encoded(("error", why.anthropic_body) if self._of_anthropic else ("", why.body))

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self.end()

    async def end(self) -> None:
        """Safe to call twice."""
        try:
            await self._answer.aclose()
        finally:
            self._stack.close()
