"""The life of a router."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from duo.server.app import make_app
from duo.server.lifecycle import Serving
from duo.server.listening import ListeningSocket
from duo.server.router import routes
from duo.server.router.service import Router

if TYPE_CHECKING:
    from duo.model import Duo


class RouterServing(Serving):
    """ready: called when requests are served."""

    def __init__(
        self,
        router: Router,
        listeners: Sequence[ListeningSocket],
        *,
        drain_s: float,
        ready: Callable[[], None],
        cert: str | None = None,
        key: str | None = None,
    ) -> None:
        super().__init__(
            router, listeners, _no_pair, drain_s=drain_s, cert=cert, key=key, app=make_app(router, (routes,))
        )
        self._router, self._now_ready = router, ready

    async def _begin(self) -> None:
        self._router.begin()
        self._now_ready()

    async def _free(self) -> None:
        ending = asyncio.create_task(self._router.end())
        await self._until_hurried(ending)
        self._router.fleet.kill()
        await ending
        await super()._free()


def _no_pair() -> Duo:
    raise AssertionError("a router has no models of its own")
