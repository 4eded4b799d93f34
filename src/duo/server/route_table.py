"""The routes of a server: a table that Starlette serves, and that FastAPI describes if somebody asks for that.

FastAPI takes as long to be imported as all else that a server needs, and a server needs it for its description alone.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Match, Route

from duo.server.schemas import Fields, build

Handler = Callable[..., Awaitable[Response]]  # takes `request` or not, and parameters of its path
H = TypeVar("H", bound=Handler)


@dataclass(frozen=True)
class Entry:
    """A route. body: the fields of its request, for the description; response_class: the kind of its answer, too."""

    path: str
    handler: Handler
    methods: Collection[str]
    body: type[Fields] | None
    response_class: type[Response]
    include_in_schema: bool


class RouteTable:
    """Routes in the order in which they are tried. prefix: comes before all paths."""

    def __init__(self, prefix: str = "") -> None:
        self._prefix = prefix
        self._entries: list[Entry] = []

    def add(
        self,
        path: str,
        handler: Handler,
        methods: Collection[str],
        *,
        body: type[Fields] | None = None,
        response_class: type[Response] = JSONResponse,
        include_in_schema: bool = True,
    ) -> None:
        self._entries.append(Entry(self._prefix + path, handler, methods, body, response_class, include_in_schema))

    def get(self, path: str, **more: Any) -> Callable[[H], H]:
        """Decorates a handler. more: as `add` has it."""
        return self._decorator(path, "GET", more)

    def post(self, path: str, **more: Any) -> Callable[[H], H]:
        """Decorates a handler. more: as `add` has it."""
        return self._decorator(path, "POST", more)

    def _decorator(self, path: str, method: str, more: dict[str, Any]) -> Callable[[H], H]:
        def decorated(handler: H) -> H:
            self.add(path, handler, [method], **more)
            return handler

        return decorated

    def served(self) -> Iterator[ServedRoute]:
        """For Starlette."""
        return (ServedRoute(e) for e in self._entries)

    def description(self, title: str, version: str) -> dict[str, Any]:
        """The OpenAPI document. It takes a second, most of it for the import of FastAPI."""
        from fastapi import FastAPI

        app = FastAPI(title=title, version=version, openapi_url=None)
        for e in self._entries:
            if e.include_in_schema:
                app.add_api_route(
                    e.path,
                    e.handler,
                    methods=list(e.methods),
                    response_class=e.response_class,
                    openapi_extra=None if e.body is None else _body_of(e.body),
                )
        return app.openapi()


def _body_of(kind: type[Fields]) -> dict[str, Any]:
    build(kind)
    schema = kind.model_json_schema()
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


class ServedRoute(Route):
    """Calls its handler with what it takes. A route for GET answers HEAD, too."""

    def __init__(self, entry: Entry) -> None:
        parameters = inspect.signature(entry.handler).parameters

        async def endpoint(request: Request) -> Response:
            arguments = {**request.path_params, "request": request}
            return await entry.handler(**{name: arguments[name] for name in parameters})

        super().__init__(entry.path, endpoint, methods=entry.methods)
        self.methods = {*entry.methods, *(("HEAD",) if "GET" in entry.methods else ())}

    def matches(self, scope: Any) -> tuple[Match, Any]:
        """The scope then names the route: not all versions of Starlette do that, and the metrics want to know it."""
        match, child = super().matches(scope)
        return match, child if match is Match.NONE else {**child, "route": self}
