"""The Starlette app: its routes, and what stands around them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import Unpack

from duo import __version__
from duo.errors import BadValueError
from duo.generation.recent_events import RecentEvents
from duo.models.file_name import model_name
from duo.options.serve import ServeOptions
from duo.server.errors import ApiError, as_api_error
from duo.server.json_text import dumped
from duo.server.middleware import Gate
from duo.server.route_table import RouteTable
from duo.server.routes import about, anthropic, embeddings, files, lora, missing, page, responses, slots, texts, tokens
from duo.server.service import Service
from duo.server.settings import ServerSettings
from duo.server.visitors import LOCALHOST

if TYPE_CHECKING:
    from duo.model import Duo

N_SHOWN = 200  # characters of an unknown path
# Options of the server that runs the app.
OF_SERVER = (
    "host", "port", "reuse_port", "drain", "timeout", "keep_alive", "header_timeout", "ssl_key_file", "ssl_cert_file",
    "insecure", "sleep_idle_seconds",
)  # fmt: skip
# Options of a router, which runs several models.
OF_ROUTER = ("models_dir", "models_preset", "models_max", "models_autoload")


def create_app(duo: Duo, *, trace: RecentEvents | None = None, **options: Unpack[ServeOptions]) -> Starlette:
    """Makes a Starlette app with the routes of `duo serve`, for a program that has a server of its own.

    `app.mount("/llm", create_app(d))` adds it to another app, and `uvicorn.run(create_app(d))` serves it. Without
    `api_key`, every machine that can reach the server may use it, if the request's Host header is a name of this
    machine, an address, or one of `allowed_hosts`.

    Args:
        duo: The models. The caller closes it when the server has ended.
        trace: The `RecentEvents` that `Duo(trace=...)` got. With it the page at / shows the workers.
        **options: Keywords of the server.

    Raises:
        TypeError: A keyword is unknown.
        BadValueError: A value is wrong, or the option is not for an app, such as `port` or `models_dir`.
        MissingPackageError: The extra `server` is not installed.
    """
    for name in options:
        if name in OF_SERVER:
            raise BadValueError(f"{name} is an option of the server that runs this app; give it there")
        if name in OF_ROUTER:
            raise BadValueError(f"{name} is an option of `duo serve`, and this app serves one Duo; leave it out")
    shown = {**options, "ui": trace is not None and options.get("ui", True)}
    service = Service(ServerSettings.of(shown, model_name(Path(duo.local_model.path))))
    service.events = trace if service.settings.ui else None
    service.loaded(duo)
    return make_app(service)


class Routes(Protocol):
    """A module of routes."""

    def add(self, router: RouteTable, service: Any, /) -> None: ...


OF_PAIR: tuple[Routes, ...] = (about, slots, texts, embeddings, tokens, lora, anthropic, responses, missing, page)


def make_app(service: Service, parts: Sequence[Routes] = OF_PAIR) -> Starlette:
    """The app for a service, which may still be loading."""
    settings = service.settings
    router = RouteTable(settings.api_prefix)

    @cache
    def description() -> bytes:
        return dumped(router.description("duo serve", __version__))

    @router.get("/openapi.json", include_in_schema=False)
    async def openapi() -> Response:
        return Response(await service.in_thread(description), media_type="application/json")

    for part in parts:
        part.add(router, service)
    app = Starlette(routes=[*router.served()])
    files.add(app, settings)
    app.add_exception_handler(HTTPException, _refused)
    app.add_exception_handler(ApiError, _raise)
    app.add_middleware(Gate, service=service)
    origins = settings.visitors.origins
    if origins:
        app.add_middleware(
            _Cors,
            allow_origins=["*"] if "*" in origins else [o for o in origins if o != "localhost"],
            allow_origin_regex=LOCALHOST if "localhost" in origins else None,
            allow_credentials="*" not in origins if settings.cors_credentials is None else settings.cors_credentials,
            allow_methods=settings.cors_methods,
            allow_headers=settings.cors_headers,
        )
    return app


class _Cors(CORSMiddleware):
    """A page that may not use the server learns it from what the answer lacks, as from llama-server."""

    def preflight_response(self, request_headers: Headers) -> Response:
        answer = super().preflight_response(request_headers)
        if answer.status_code != 400:
            return answer
        headers = {k: v for k, v in answer.headers.items() if not k.startswith(("access-control-", "content-"))}
        return Response("OK", 200, headers, media_type="text/plain")


# Both are async, because Starlette runs other handlers in threads: up to 40 of them when many requests are refused.


async def _raise(_request: Request, e: Exception) -> Response:
    raise e  # the gate makes the answer


async def _refused(request: Request, e: Exception) -> Response:
    assert isinstance(e, HTTPException)
    what = {404: "there is no route", 405: "the method is not allowed for"}.get(e.status_code, str(e.detail))
    path = request.url.path
    shown = path if len(path) <= N_SHOWN else f"{path[:N_SHOWN]}..."
    raise as_api_error(ApiError(e.status_code, f"{what} {shown}", headers=dict(e.headers or {})))
