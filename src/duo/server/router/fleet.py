"""Which models are loaded: at most so many, and the one that was asked for longest ago makes room."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from duo.remote.parent import FOLDER_PREFIX
from duo.server.errors import ApiError
from duo.server.router.child import Child, NotLoaded
from duo.server.router.sources import Source


@dataclass(eq=False)
class Member:
    """A model, and what has become of it."""

    source: Source
    state: str = "unloaded"  # llama-server's words: loading, loaded
    failed: bool = False
    child: Child | None = None
    n_inside: int = 0  # requests that it answers
    used_at: float = 0.0
    changing: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def is_there(self) -> bool:
        return self.state == "loaded" and self.child is not None and self.child.is_alive

    @property
    def status(self) -> dict[str, Any]:
        """As llama-server's list of models shows it."""
        found: dict[str, Any] = {"value": self.state if self.state != "loaded" or self.is_there else "unloaded"}
        if self.child is not None:
            found["args"] = ["duo", *self.child.args]
        if self.failed or (self.state == "loaded" and not self.is_there):
            found |= {"failed": True, "exit_code": self.child.exit_code if self.child is not None else None}
        return found


class Fleet:
    """For one event loop. n_most: models at a time; 0: any number. say: gets lines for the user."""

    def __init__(self, sources: Mapping[str, Source], n_most: int, say: Callable[[str], None]) -> None:
        self.members = {name: Member(s) for name, s in sources.items()}
        self._n_most, self._say = n_most, say
        self._folder = Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX))  # only this user may enter it
        self._n_started = 0
        self._room = asyncio.Lock()  # held by who makes room

    def find(self, name: object) -> Member:
        """Raises ApiError: there is no such model."""
        found = self.members.get(name) if isinstance(name, str) else None
        if found is None:
            known = ", ".join(list(self.members)[:20])
            raise ApiError(404, f"there is no model {str(name)[:100]!r} here; choose from {known or 'none'}")
        return found

    @contextmanager
    def used(self, member: Member) -> Iterator[Child]:
        """The process of a loaded model, which stays meanwhile. Raises ApiError: it is not loaded."""
        if not member.is_there or member.child is None:
            raise ApiError(503, f"the model {member.source.name} is not loaded; POST /models/load loads it")
        member.n_inside += 1
        try:
            yield member.child
        finally:
            member.n_inside -= 1
            member.used_at = time.monotonic()

    async def load(self, member: Member) -> None:
        """Returns when the model is there. Raises ApiError 503: it cannot be loaded, or there is no room."""
        async with member.changing:
            if member.is_there:
                return
            if member.child is not None:  # it has died
                await member.child.stop()
                member.child = None
            async with self._room:
                await self._make_room()
                member.state, member.failed, member.used_at = "loading", False, time.monotonic()
            self._n_started += 1
            name = member.source.name
            member.child = Child(
                member.source, self._folder / f"{self._n_started}.sock", lambda line: self._say(f"[{name}] {line}")
            )
            try:
                await member.child.start()
                member.state = "loaded"
            except NotLoaded as e:
                member.failed = True
                raise ApiError(503, f"the model {name} could not be loaded: {e}") from None
            finally:
                if member.state != "loaded":
                    member.state = "unloaded"
                    await member.child.stop()

    async def _make_room(self) -> None:
        """Raises ApiError 503: all that are loaded are busy."""
        while self._n_most and sum(m.is_there or m.state == "loading" for m in self.members.values()) >= self._n_most:
            idle = [m for m in self.members.values() if m.is_there and not m.n_inside]
            if not idle:
                raise ApiError(
                    503, f"all {self._n_most} models (--models-max) are busy; try again later",
                    headers={"Retry-After": "5"},
                )  # fmt: skip
            await self.unload(min(idle, key=lambda m: m.used_at))

    async def unload(self, member: Member) -> None:
        """Ends its process, if it has one."""
        async with member.changing:
            child, member.child, member.state = member.child, None, "unloaded"
            if child is not None:
                await child.stop()

    async def close(self) -> None:
        """Ends all. Safe to call twice."""
        children = [m.child for m in self.members.values() if m.child is not None]
        await asyncio.gather(*(c.stop() for c in children), return_exceptions=True)
        for m in self.members.values():
            m.child, m.state = None, "unloaded"
        shutil.rmtree(self._folder, ignore_errors=True)
