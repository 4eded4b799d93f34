"""Which models are loaded: at most so many, and the one that was asked for longest ago makes room."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from math import ceil, inf
from pathlib import Path
from typing import Any
from weakref import WeakSet

from duo.errors import BadValueError
from duo.models.header import read_header
from duo.remote.parent import FOLDER_PREFIX
from duo.server.errors import ApiError
from duo.server.router.child import ModelProcess, NotLoaded
from duo.server.router.model_events import ModelEvents
from duo.server.router.sources import ModelSource

RETRY_S = 60.0  # after a load that failed, no other model makes room for the same one


@dataclass(eq=False)
class Member:
    """A model, and what has become of it. Its process is taken out in one step of the loop, so no lock guards it."""

    source: ModelSource
    child: ModelProcess | None = None
    is_ready: bool = False  # the process serves, as long as it lives
    exit_code: int | None = None  # of a load that failed
    failed: bool = False
    why: str = ""  # that load failed
    failed_at: float = -inf
    n_inside: int = 0  # requests that it answers
    used_at: float = 0.0
    loading: asyncio.Task[None] | None = None
    is_unwanted: bool = False  # the load that goes on shall not begin a process any more

    @property
    def is_there(self) -> bool:
        return self.is_ready and self.child is not None and self.child.is_alive

    @property
    def status(self) -> dict[str, Any]:
        """As llama-server's list of models shows it."""
        value = "loaded" if self.is_there else "loading" if self.child is not None and not self.is_ready else "unloaded"
        fields: dict[str, Any] = {"value": value}
        if self.child is not None:
            fields["args"] = ["duo", *self.child.args]
        died = self.is_ready and not self.is_there
        if self.failed or died:
            code = self.child.exit_code if died and self.child is not None else self.exit_code
            fields |= {"failed": True, "exit_code": code}
        return fields

    def has_failed(self, why: str, exit_code: int | None) -> None:
        self.failed, self.why, self.exit_code, self.failed_at = True, why, exit_code, time.monotonic()

    def taken_out(self) -> ModelProcess | None:
        """Its process, which the caller stops; None: it has none."""
        child, self.child, self.is_ready = self.child, None, False
        return child


class Fleet:
    """For one event loop. n_most: models at a time; 0: any number. env: of their processes. say: gets lines for the
    user."""

    def __init__(
        self, sources: Mapping[str, ModelSource], n_most: int, env: Mapping[str, str], say: Callable[[str], None]
    ) -> None:
        self.members = {name: Member(s) for name, s in sources.items()}
        self.n_most, self._env, self._say = n_most, env, say
        self._folder = Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX))  # only this user may enter it
        self._n_started = 0
        self._children: WeakSet[ModelProcess] = WeakSet()
        self._room = asyncio.Lock()  # held by who makes room; others queue for it, first come, first served
        self._news = asyncio.Event()  # a model may have become idle, or nobody waits for one any more
        self._closed = False
        self.events = ModelEvents()

    @property
    def n_started(self) -> int:
        """Processes so far."""
        return self._n_started

    @property
    def folder(self) -> Path:
        """Of their sockets."""
        return self._folder

    def find(self, name: object) -> Member:
        """Raises ApiError: there is no such model."""
        member = self.members.get(name) if isinstance(name, str) else None
        if member is None:
            known = ", ".join(list(self.members)[:20])
            raise ApiError(404, f"there is no model {str(name)[:100]!r} here; choose from {known or 'none'}")
        return member

    @contextmanager
    def used(self, member: Member) -> Iterator[ModelProcess]:
        """The process of a loaded model, which stays meanwhile. Raises ApiError: it is not loaded."""
        if not member.is_there or member.child is None:
            raise ApiError(503, f"the model {member.source.name} has been unloaded; try again")
        member.n_inside += 1
        try:
            yield member.child
        finally:
            member.n_inside -= 1
            member.used_at = time.monotonic()
            self._news.set()

    async def load(self, member: Member, *, anyway: bool = False) -> None:
        """Returns when the model is there; it may have to wait until another one is idle, as in llama-server. Who waits
        may go; a load that has begun goes on. anyway: even if it failed a moment ago, and another one has to go.

        Raises ApiError 503: it cannot be loaded.
        """
        if self.members.get(member.source.name) is not member:  # it was replaced while a request held it
            raise ApiError(503, f"the model {member.source.name} has been unloaded; try again")
        if member.is_there:
            return
        if member.loading is None:
            member.is_unwanted = self._closed
            member.loading = asyncio.create_task(self._load(member, anyway))
            member.loading.add_done_callback(lambda task: _loaded(member, task))
        member.n_inside += 1  # from the load to the use, nobody else takes its room
        try:
            await asyncio.shield(member.loading)
        finally:
            member.n_inside -= 1
            self._news.set()

    async def _load(self, member: Member, anyway: bool) -> None:
        if (old := member.taken_out()) is not None:  # it has died
            await old.stop()
        name = member.source.name
        async with self._room:
            _check_wanted(member)
            await self._make_room(member, anyway)
            _check_wanted(member)
            self._n_started += 1
            socket = self._folder / f"{self._n_started}.sock"
            child = ModelProcess(
                member.source,
                socket,
                self._env,
                lambda line: self._say(f"[{name}] {line}"),
                ended=partial(self.events.ended, name),
            )
            self._children.add(child)
            member.child, member.failed, member.used_at = child, False, time.monotonic()
        try:
            await child.start(partial(self.events.begun, name))
            about = await child.about()
            _check_wanted(member)
            member.is_ready = member.child is child
            if member.is_there:
                self.events.loaded(name, about)
        except NotLoaded as e:
            if member.child is child:
                member.has_failed(str(e), child.exit_code)
            _check_wanted(member)
            raise ApiError(503, f"the model {name} could not be loaded: {e}") from None
        finally:
            if not member.is_ready:
                if member.child is child:
                    member.child = None
                await child.stop()
            self._news.set()

    @property
    def _is_full(self) -> bool:
        return 0 < self.n_most <= sum(m.child is not None for m in self.members.values())

    async def _make_room(self, member: Member, anyway: bool) -> None:
        """For this one. Raises ApiError 503: it is not wanted any more, or not worth it."""
        if self._is_full:
            await _check_worth(member, anyway)
        while self._is_full:
            _check_wanted(member)
            if not member.n_inside:
                raise ApiError(503, f"nobody waits for the model {member.source.name} any more")
            self._news.clear()
            idle = [m for m in self.members.values() if m.is_ready and not m.n_inside]
            if not idle:
                await self._news.wait()
            elif (child := min(idle, key=lambda m: m.used_at).taken_out()) is not None:
                await child.stop()

    async def unload(self, member: Member) -> None:
        """Ends its process, if it has one, even while it loads. Who asks for it then begins a load of their own."""
        loading = member.loading
        member.is_unwanted = loading is not None
        self._news.set()
        if (child := member.taken_out()) is not None:
            await child.stop()
        if loading is not None:
            await asyncio.wait([loading])

    async def replace(self, sources: Mapping[str, ModelSource]) -> None:
        """The models are these from now on. What is gone, or is to be loaded otherwise, is unloaded."""
        gone = [member for name, member in self.members.items() if sources.get(name) != member.source]
        for member in gone:
            del self.members[member.source.name]
        self.members |= {name: Member(s) for name, s in sources.items() if name not in self.members}
        await asyncio.gather(*map(self.unload, gone))

    def kill(self) -> None:
        """Their processes get no more time, also those that somebody stops already."""
        for child in self._children:
            child.kill()

    async def close(self) -> None:
        """Ends all. Safe to call twice."""
        self._closed = True
        await asyncio.gather(*(self.unload(m) for m in self.members.values()), return_exceptions=True)
        shutil.rmtree(self._folder, ignore_errors=True)


def _check_wanted(member: Member) -> None:
    """Raises ApiError 503: somebody has unloaded it meanwhile."""
    if member.is_unwanted:
        raise ApiError(503, f"the model {member.source.name} was unloaded; try again")


async def _check_worth(member: Member, anyway: bool) -> None:
    """Before another model makes room for this one. Raises ApiError 503: its files cannot be read, or it failed a
    moment ago (unless anyway)."""
    try:
        for file in member.source.files:
            await asyncio.to_thread(read_header, file)
    except BadValueError as e:
        member.has_failed(str(e), 1)  # as of its process
        raise ApiError(503, f"the model {member.source.name} could not be loaded: {e}") from None
    left = ceil(member.failed_at + RETRY_S - time.monotonic()) if member.failed and not anyway else 0
    if left > 0:
        raise ApiError(
            503,
            f"the model {member.source.name} could not be loaded: {member.why}; another model makes room for it again "
            f"in {left} s, or by POST /models/load",
            headers={"Retry-After": str(left)},
        )


def _loaded(member: Member, task: asyncio.Task[None]) -> None:
    member.loading = None
    if not task.cancelled():
        task.exception()  # who waits gets it; perhaps nobody does
