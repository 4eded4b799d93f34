"""Routes of llama-server that duo does not have: 501, by name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from starlette.responses import Response

from duo.server.errors import ApiError

if TYPE_CHECKING:
    from duo.server.route_table import RouteTable
    from duo.server.service import Service

# Paths by what they are for (llama.cpp, tools/server/server.cpp).
MISSING = {
    "transcription of speech": ("/v1/audio/transcriptions", "/audio/transcriptions"),
    "tools of the server's own": ("/tools",),
    "a proxy for web pages": ("/cors-proxy",),
    "control of a running stream": ("/v1/chat/completions/control",),
    "streams that can be resumed": ("/v1/stream", "/v1/streams/lookup"),
}
OF_ROUTER = ("/models/load", "/models/unload", "/models/sse")


def add(router: RouteTable, service: Service) -> None:
    reasons = {
        p: f"llama-server's {p} ({what}) is not supported by duo" for what, paths in MISSING.items() for p in paths
    }
    reasons |= {p: f"{p} is for a server of several models (--models-dir, --models-preset)" for p in OF_ROUTER}
    for path, why in reasons.items():
        router.add(path, _refusal(why), methods=["GET", "POST", "DELETE"], include_in_schema=False)
    one = _refusal("llama-server's /models (several models at a time) is not supported by duo")
    router.add("/models", one, methods=["POST", "DELETE"], include_in_schema=False)


def _refusal(why: str) -> Callable[[], Awaitable[Response]]:
    async def refuse() -> Response:
        raise ApiError(501, why)

    return refuse
