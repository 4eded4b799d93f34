"""A thread that passes the output of a seat to the event loop, no faster than it is sent."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

N_AHEAD = 64  # messages that are taken but not sent
SLICE_S = 0.05


class QueuePump(Generic[T]):
    """`take` blocks briefly and returns None if there is nothing. `get` raises what `take` raises."""

    def __init__(self, take: Callable[[], T | None], name: str) -> None:
        self._take = take
        self._loop = asyncio.get_running_loop()
        self._items: asyncio.Queue[T | BaseException] = asyncio.Queue()
        self._room = threading.Semaphore(N_AHEAD)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                item: T | BaseException | None = self._take()
            except Exception as e:
                item = e
            if item is None:
                continue
            while not self._room.acquire(timeout=SLICE_S):
                if self._stop.is_set():
                    return
            try:
                self._loop.call_soon_threadsafe(self._items.put_nowait, item)
            except RuntimeError:  # the loop is gone
                return
            if isinstance(item, BaseException):
                return

    async def get(self) -> T:
        """The next item. Raises what `take` raised."""
        item = await self._items.get()
        self._room.release()
        if isinstance(item, BaseException):
            raise item
        return item

    async def stop(self) -> None:
        """Returns when the thread has ended: at most one `take` later."""
        self._stop.set()
        await asyncio.to_thread(self._thread.join)
