"""What every request passes: keys, the limits of its body, and the shape of what goes wrong."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from duo.errors import Cancelled
from duo.server.errors import ApiError, Asleep
from duo.server.json_text import dumped
from duo.server.listening import is_loopback_address
from duo.server.page_files import KINDS
from duo.server.protocol import is_ambiguous
from duo.server.route_table import ServedRoute
from duo.server.routes.files import OWN_PAGE
from duo.server.sse import Message, Receive, Send
from duo.server.visitors import READING, PageHeaders
from duo.support.wording import quoted

if TYPE_CHECKING:
    from duo.server.service import Service

App = Callable[[Any, Receive, Send], Awaitable[None]]
PUBLIC = ("/health", "/v1/health", "/livez")  # for everybody, with and without a key
PAGE = ("/", *(f"/ui/{name}" for name in KINDS))  # for everybody, where there is a page
OF_ANTHROPIC = "/v1/messages"
CLOSE = {"Connection": "close"}
log = logging.getLogger("duo.server")


class Gate:
    """ASGI. The body of a request is read whole and lies in scope["duo.body"] until somebody takes it."""

    def __init__(self, app: App, service: Service) -> None:
        self._app, self._service = app, service

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        sent = _Sent(send, partial(self._own_headers, scope))
        try:
            if any(part in (".", "..") for part in scope["path"].split("/")):
                raise ApiError(400, "the path has . or .. in it; write it without them")
            if is_ambiguous(scope["headers"]):
                why = "the request has both a Content-Length and a Transfer-Encoding; send one of them"
                raise ApiError(400, why, headers=CLOSE)
            self._check_visitor(scope)
            self._check_key(scope)
            scope["duo.body"] = await self._body(scope, receive)
            await self._inside(scope, _after(receive), sent)
        except Exception as e:
            await self._refuse(scope, sent, e)
            e.__traceback__ = None  # its frames hold what was read, and one of them holds it: a cycle
        finally:
            scope.pop("duo.body", None)
            route = scope.get("route")  # of another app, if it has mounted this one and no route was found here
            name = route.path if isinstance(route, ServedRoute) else "other"
            self._service.metrics.answered(name, sent.status or 499)

    async def _refuse(self, scope: Any, sent: _Sent, e: Exception) -> None:
        if sent.status or isinstance(e, _Gone):
            return  # the client has gone, or has a part of its answer
        error = self._service.error_of(e)
        if error.status == 500:
            log.error("a request for %s failed", scope["path"], exc_info=e)
        stopped = isinstance(e, Cancelled) and self._service.is_ending
        if stopped or (error.status == 500 and self._service.is_closing):  # because the models are freed
            error = self._service.not_ready()
        if error.reason:
            self._service.metrics.refused(error.reason)
        await _send_error(sent, self._route(scope), error)

    async def _inside(self, scope: Any, receive: Receive, send: Send) -> None:
        """A request whose route finds that the models are asleep waits until they are loaded, and is served again."""
        naps = self._service.naps
        if naps is None or naps.is_quiet(self._route(scope)):
            await self._app(scope, receive, send)
            return
        body = scope["duo.body"] if self._service.is_asleep else b""
        with naps.visit(counts=False):  # unless it uses the models
            try:
                await self._app(scope, receive, send)
            except Asleep:
                if not self._may_wake(scope):
                    raise ApiError(
                        403,
                        "this may come from a page of another site, which may not wake the models; see --cors-origins",
                        reason="origin",
                    ) from None
                await naps.wake()
                naps.used()
                scope["duo.body"], body = body, b""
                await self._app(scope, receive, send)

    def _may_wake(self, scope: Any) -> bool:
        """What pages may send to change something has been checked."""
        if scope["method"] not in READING or _is_of_unix(scope):
            return True
        return self._service.settings.visitors.may_load(PageHeaders.of(scope["headers"]))

    def _route(self, scope: Any) -> str:
        """The path below the one at which another app may have mounted this one, and below --api-prefix."""
        path: str = scope["path"]
        return path.removeprefix(scope.get("root_path", "")).removeprefix(self._service.settings.api_prefix)

    def _own_headers(self, scope: Any) -> list[tuple[bytes, bytes]]:
        headers = [(b"x-request-id", v) for k, v in scope["headers"] if k == b"x-request-id"][:1]
        if self._service.is_ending:
            headers.append((b"connection", b"close"))
        return headers

    def _check_visitor(self, scope: Any) -> None:
        visitors = self._service.settings.visitors
        origin, host, site, *_ = PageHeaders.of(scope["headers"])
        own_address = (scope["server"] or ("",))[0]
        if not _is_of_unix(scope) and not visitors.knows_host(host, over_loopback=is_loopback_address(own_address)):
            raise ApiError(
                403,
                f"this server is not called {quoted(host)}; start it with --allowed-hosts, or ask it by its address",
                reason="host",
            )
        if not visitors.knows_origin(scope["method"], origin, host, fetch_site=site):
            raise ApiError(403, f"the page {origin} may not use this server; see --cors-origins", reason="origin")

    def _check_key(self, scope: Any) -> None:
        settings = self._service.settings
        path = self._route(scope)
        if not settings.keys or path in PUBLIC or scope["method"] == "OPTIONS":
            return
        pages = PAGE if self._service.has_page else OWN_PAGE if settings.files else ()
        if path in pages and scope["method"] in ("GET", "HEAD"):
            return  # the page itself shows nothing of the model
        headers = {k: v for k, v in scope["headers"] if k in (b"authorization", b"x-api-key")}
        kind, _, bearer = headers.get(b"authorization", b"").partition(b" ")
        key = bearer.strip() if kind.lower() == b"bearer" else headers.get(b"x-api-key", b"")
        if not key or not settings.knows_key(key):
            raise ApiError(401, "Invalid API Key", headers={"WWW-Authenticate": "Bearer"}, reason="key")

    async def _body(self, scope: Any, receive: Receive) -> bytes:
        """Raises ApiError: it is too large, or too slow."""
        settings = self._service.settings
        too_large = ApiError(
            413, f"the body has more than {settings.n_body} bytes (--max-body)", headers=CLOSE, reason="body_too_large"
        )
        length = next((v for k, v in scope["headers"] if k == b"content-length"), b"0")
        if length.isdigit() and int(length[:20]) > settings.n_body:
            raise too_large

        async def read_all() -> bytes:
            body = bytearray()
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise _Gone
                body += message.get("body", b"")
                if len(body) > settings.n_body:
                    raise too_large
                if not message.get("more_body"):
                    return bytes(body)

        try:
            return await asyncio.wait_for(read_all(), settings.body_timeout_s)
        except asyncio.TimeoutError:
            seconds = settings.body_timeout_s
            raise ApiError(
                408,
                f"the body did not come within {seconds:g} s (--body-timeout)",
                headers=CLOSE,
                reason="body_too_slow",
            ) from None


def _is_of_unix(scope: Any) -> bool:
    """Whether it came over a Unix socket, which no browser opens."""
    return bool(scope["server"]) and scope["server"][1] is None


class _Gone(Exception):  # noqa: N818 - no error
    """The client has gone before its request was whole."""


class _Sent:
    """Remembers the status, and adds headers: those of the moment when the answer begins."""

    def __init__(self, send: Send, headers: Callable[[], list[tuple[bytes, bytes]]]) -> None:
        self._send, self._headers = send, headers
        self.status = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message = {**message, "headers": [*message.get("headers", ()), *self._headers()]}
        await self._send(message)


def _after(receive: Receive) -> Receive:
    """The body has been read: what comes next is the end of the connection."""

    async def rest() -> Message:
        while (message := await receive())["type"] != "http.disconnect":
            pass
        return message

    return rest


async def _send_error(send: Send, path: str, error: ApiError) -> None:
    body = dumped(error.anthropic_body if path.startswith(OF_ANTHROPIC) else error.body)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    headers += [(k.lower().encode(), v.encode("latin-1")) for k, v in error.headers.items()]
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
