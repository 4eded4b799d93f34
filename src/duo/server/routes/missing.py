"""Routes of llama-server that duo does not have: 501, by name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from fastapi import APIRouter
from starlette.responses import Response

from duo.server.errors import ApiError

if TYPE_CHECKING:
    from duo.server.service import Service

# Paths by what they are for (llama.cpp, tools/server/server.cpp).
MISSING = {
    "transcription of speech": ("/v1/audio/transcriptions", "/audio/transcriptions"),
    "tools of the server's own": ("/tools",),
    "a proxy for web pages": ("/cors-proxy",),
    "loading and unloading of models (of a server with --models-dir)": (
        "/models/load",
        "/models/unload",
        "/models/sse",
    ),
    "control of a running stream": ("/v1/chat/completions/control",),
    "streams that can be resumed": ("/v1/stream", "/v1/streams/lookup"),
}


def add(router: APIRouter, service: Service) -> None:
    for what, paths in MISSING.items():
        for path in paths:
            router.add_api_route(path, _refusal(path, what), methods=["GET", "POST", "DELETE"], include_in_schema=False)
    one = _refusal("/models", "several models at a time")
    router.add_api_route("/models", one, methods=["POST", "DELETE"], include_in_schema=False)


def _refusal(path: str, what: str) -> Callable[[], Awaitable[Response]]:
    async def refuse() -> Response:
        raise ApiError(501, f"llama-server's {path} ({what}) is not supported by duo")

    return refuse
