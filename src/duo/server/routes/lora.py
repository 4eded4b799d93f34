"""/lora-adapters: the target's LoRA adapters and their scales."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from duo.errors import BadValueError
from duo.server.adapters import scales_of, shown
from duo.server.errors import ApiError
from duo.server.request_body import body_of, parsed
from duo.server.respond import Json

if TYPE_CHECKING:
    from duo.server.route_table import RouteTable
    from duo.server.service import Service


def add(router: RouteTable, service: Service) -> None:
    @router.get("/lora-adapters")
    async def adapters() -> Response:
        """The adapters of --lora and --lora-scaled: id, path, scale."""
        return Json(await service.in_thread(shown, service.check_ready()))

    @router.post("/lora-adapters")
    async def scales(request: Request) -> Response:
        """Sets the scales of the texts that begin later; an adapter that is not named gets 0."""
        entries = parsed(body_of(request))
        if not isinstance(entries, list):
            raise ApiError(400, 'the body is not a list; send [{"id": 0, "scale": 1.0}]')
        duo = service.check_ready()
        try:
            duo.lora_scales = scales_of(entries, duo)
        except BadValueError as e:
            raise ApiError(400, str(e)) from None
        return Json({"success": True})
