"""The page at /, and what it shows of the two workers."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from duo import _core
from duo.server.errors import ApiError
from duo.server.page_files import FOLDER, KINDS
from duo.server.respond import Json
from duo.support.wording import quoted

if TYPE_CHECKING:
    from duo.generation.recent_events import RecentEvents
    from duo.server.route_table import RouteTable
    from duo.server.service import Service

# The model's text is untrusted: nothing but the package's own files is run, and nobody else is asked for anything.
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
# Of `Event`, in the order in which the answer has them.
EVENT = ("kind", "lane", "t0_us", "t1_us", "slot", "n_rows", "n_accepted", "n_drafted", "hit", "depth", "stance")


def add(router: RouteTable, service: Service) -> None:
    """Nothing with --no-ui."""
    if service.events is None:
        return
    events = service.events
    for name in KINDS:
        path = "/" if name == "index.html" else f"/ui/{name}"
        router.get(path, include_in_schema=False)(_file(name))

    @router.get("/duo/trace")
    async def trace(request: Request) -> Response:
        """What the workers did since the event number `after` (default 0), as far as it is kept.

        `next` is the number to ask for the next time, now_us the time on the clock of the events (microseconds), and
        each event a list in the order of `fields`.
        """
        after = request.query_params.get("after", "0")
        if not (after.isascii() and after.isdigit() and len(after) < 16):
            raise ApiError(400, f"after is {quoted(after, 40)}; give the number `next` of the last answer")
        return Json(await service.in_thread(_recent, service, events, int(after)))


def _recent(service: Service, events: RecentEvents, after: int) -> dict[str, Any]:
    events.look()
    service.duo.session.write_trace()
    n_all, new_events = events.since(after)
    return {
        "now_us": _core.now_us(),
        "next": n_all,
        "fields": EVENT,
        "events": [[getattr(e, name) for name in EVENT] for e in new_events],
    }


def _file(name: str) -> Any:
    """A route for a file of the package, which is read once."""
    data = (FOLDER / name).read_bytes()
    headers = {**HEADERS, "ETag": f'"{hashlib.sha256(data).hexdigest()[:32]}"'}

    async def send(request: Request) -> Response:
        if request.headers.get("if-none-match") == headers["ETag"]:
            return Response(status_code=304, headers=headers)
        return Response(data, media_type=KINDS[name], headers=headers)

    return send
