"""What the server's other parts see of a router."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from duo.server.router.fleet import Fleet
from duo.server.service import Service, Stage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from duo.server.router.sources import ModelSource
    from duo.server.settings import ServerSettings


class Router(Service):
    """For one event loop. autoload: whether a request loads the model that it names. env: of the models' processes.
    say: gets lines for the user. read: finds the sources again, in a thread; None: they stay as they are."""

    def __init__(
        self,
        settings: ServerSettings,
        sources: Mapping[str, ModelSource],
        *,
        n_most: int,
        autoload: bool,
        env: Mapping[str, str],
        say: Callable[[str], None],
        read: Callable[[], Mapping[str, ModelSource]] | None = None,
    ) -> None:
        super().__init__(settings)
        self._read, self._reading = read, asyncio.Lock()
        self.fleet, self.autoload = Fleet(sources, n_most, env, say), autoload
        self._say = say
        self._n_inside = 0  # requests that are handed on
        self._starting: set[asyncio.Task[None]] = set()

    def begin(self) -> None:
        """Requests are served from now on. Models that are wanted at once are loaded meanwhile."""
        if self.stage is Stage.LOADING:
            self.stage = Stage.READY
        for m in self.fleet.members.values():
            if m.source.on_startup:
                task = asyncio.create_task(self._load(m))
                self._starting.add(task)
                task.add_done_callback(self._starting.discard)

    async def _load(self, member: Any) -> None:
        try:
            await self.fleet.load(member)
        except Exception as e:
            self._say(str(e))

    async def reload(self) -> None:
        """Looks for models again, in the folder, the presets and the cache. Raises DuoError: nothing has changed."""
        if self._read is not None:
            async with self._reading:
                await self.fleet.replace(await self.in_thread(self._read))

    @contextmanager
    def inside(self) -> Iterator[None]:
        """A request, until its answer has been sent on."""
        self._n_inside += 1
        try:
            yield
        finally:
            self._n_inside -= 1

    @property
    def is_busy(self) -> bool:
        return self._n_inside > 0

    def _gauges(self) -> dict[str, float]:
        return {
            "requests_running": self._n_inside,
            "requests_waiting": 0,
            "places": sum(m.is_there for m in self.fleet.members.values()),
            "cache_usage_ratio": 0.0,
            "ready": float(self.is_ready),
        }

    async def end(self) -> None:
        """Ends all models."""
        for task in list(self._starting):
            task.cancel()
        await self.fleet.close()
