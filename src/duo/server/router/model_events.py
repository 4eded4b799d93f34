"""What becomes of the models, told to everybody who listens: llama-server's /models/sse."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

N_WAITING = 1000  # events that a client has not read; one that lets more wait is disconnected


class EventListener:
    """One client. For one event loop."""

    def __init__(self) -> None:
        self._events: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self._ended = False

    def tell(self, event: dict[str, Any]) -> None:
        if self._events.qsize() >= N_WAITING:
            self.stop()
        elif not self._ended:
            self._events.put_nowait(event)

    def stop(self, _why: Exception | None = None) -> None:
        """Nothing more comes. Safe to call twice."""
        if not self._ended:
            self._ended = True
            self._events.put_nowait(None)

    async def next(self) -> dict[str, Any] | None:
        """None: nothing more comes."""
        return await self._events.get()


class ModelEvents:
    """For one event loop. Names and data are llama-server's (tools/server/server-models.cpp): `model_status` when a
    process begins, `status_change` for what becomes of it."""

    def __init__(self) -> None:
        self._listeners: set[EventListener] = set()

    @property
    def n_listeners(self) -> int:
        """Clients."""
        return len(self._listeners)

    @contextmanager
    def listen(self) -> Iterator[EventListener]:
        """Who gets all events from now on."""
        listener = EventListener()
        self._listeners.add(listener)
        try:
            yield listener
        finally:
            self._listeners.discard(listener)

    def begun(self, model: str) -> None:
        """Its process loads."""
        self._tell(model, "model_status", {"status": "loading"})

    def loaded(self, model: str, info: dict[str, Any] | None) -> None:
        """It serves. info: what its process says of it."""
        self._tell(model, "status_change", {"status": "loaded", **({} if info is None else {"info": info})})

    def ended(self, model: str, exit_code: int) -> None:
        """Its process has ended. exit_code: 0 if somebody wanted that; clients take another one for a failure."""
        self._tell(model, "status_change", {"status": "unloaded", "exit_code": exit_code})

    def _tell(self, model: str, event: str, data: dict[str, Any]) -> None:
        for listener in self._listeners:
            listener.tell({"model": model, "event": event, "data": data})
