"""A server that nobody asks frees its models, and loads them again for the next request (--sleep-idle-seconds)."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from duo.server.errors import ApiError
from duo.support.wording import one_line

if TYPE_CHECKING:
    from duo.model import Duo
    from duo.server.service import Service

# Monitors and lists of models ask for these again and again. They keep nobody awake, as in llama-server.
QUIET = (
    "/health", "/v1/health", "/livez", "/metrics", "/props", "/models", "/v1/models", "/slots", "/", "/duo/trace",
    "/favicon.ico", "/openapi.json",
)  # fmt: skip
log = logging.getLogger("duo.server")


@dataclass
class _Visit:
    counts: bool


_visit: ContextVar[_Visit | None] = ContextVar("visit", default=None)  # of the running task


class Naps:
    """For one event loop. idle_s: seconds without a request. load: makes the pair again. answers: what the quiet routes
    say of the pair, for the time when it is not there."""

    def __init__(
        self,
        service: Service,
        idle_s: float,
        load: Callable[[], Awaitable[Duo]],
        answers: Callable[[Duo], dict[str, Any]],
    ) -> None:
        self._service, self._idle_s, self._load, self._answers = service, idle_s, load, answers
        self._n_inside = 0
        self._last = time.monotonic()
        self._changing = asyncio.Lock()
        self._lora_scales: list[float] = []  # as requests had set them before the models were freed
        self.remembered: dict[str, Any] = {}  # answers of quiet routes, from before the models were freed

    @staticmethod
    def is_quiet(path: str) -> bool:
        """Whether requests for this route neither wake the models nor keep them awake."""
        return path in QUIET or path.startswith(("/ui/", "/v1/models/"))

    @contextmanager
    def visit(self, *, counts: bool = True) -> Iterator[None]:
        """A request, from its head to the end of its answer. Meanwhile the models stay. counts: the time without a
        request begins again at its end; otherwise only if it has used the models."""
        visit = _Visit(counts)
        self._n_inside += 1
        before = _visit.set(visit)
        try:
            yield
        finally:
            _visit.reset(before)
            self._n_inside -= 1
            if visit.counts:
                self._last = time.monotonic()

    @staticmethod
    def used() -> None:
        """The request that is being served uses the models. It counts, whatever becomes of it."""
        if (visit := _visit.get()) is not None:
            visit.counts = True

    async def wake(self) -> None:
        """Returns when the models are there. Raises ApiError 503: they could not be loaded."""
        if not self._service.is_asleep:
            return
        async with self._changing:
            if not self._service.is_asleep:
                return
            duo: Duo | None = None
            try:
                duo = await self._load()
                if self._lora_scales:
                    duo.lora_scales = self._lora_scales
            except Exception as e:
                if duo is not None:
                    await asyncio.to_thread(duo.close)
                raise ApiError(503, f"the models could not be loaded again: {one_line(e)}") from None
            if self._service.is_asleep:
                self._service.loaded(duo)
            else:  # the server has ended meanwhile
                await asyncio.to_thread(duo.close)
                raise self._service.not_ready()

    async def watch(self) -> None:
        """Until it is cancelled."""
        while True:
            due = self._last + self._idle_s
            await asyncio.sleep(max(0.05, min(1.0, due - time.monotonic())))
            if self._is_idle:
                try:
                    await self._fall_asleep()
                except ApiError:  # it is loading, or ends
                    pass
                except Exception as e:  # the next time may be better
                    log.error("the models could not be freed: %s", one_line(e))
                    self._last = time.monotonic()

    @property
    def _is_idle(self) -> bool:
        idle = not self._n_inside and not self._service.is_busy and self._service.is_ready
        return idle and time.monotonic() - self._last >= self._idle_s

    async def _fall_asleep(self) -> None:
        async with self._changing:
            duo = self._service.check_ready()
            remembered, scales = await self._service.in_thread(lambda: (self._answers(duo), duo.lora_scales))
            if not self._is_idle:
                return
            self.remembered, self._lora_scales = remembered, scales
            duo = self._service.fall_asleep()
            try:
                await asyncio.to_thread(duo.close)
            except Exception as e:
                log.error("the models were freed with an error, so their memory may not be free: %s", one_line(e))
