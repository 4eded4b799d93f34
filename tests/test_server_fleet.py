"""The router's choice of who makes room, with models that are none."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from duo.server.errors import ApiError
from duo.server.router import fleet
from duo.server.router.child import NotLoaded
from duo.server.router.sources import ModelSource


class Process:
    """In place of a model's process; the model named bad fails."""

    is_alive, exit_code = True, 7
    args = ("serve",)

    def __init__(self, source: ModelSource, *_: Any, **__: Any) -> None:
        self.source = source

    async def start(self, begun: Callable[[], None]) -> None:
        begun()
        if self.source.name == "bad":
            raise NotLoaded("its weights are odd")

    async def about(self) -> None:
        return None

    async def stop(self) -> None:
        return None


def run(body: Callable[[fleet.Fleet], Awaitable[None]], n_most: int = 1) -> None:
    async def whole() -> None:
        sources = {name: ModelSource(name, ()) for name in ("good", "bad")}
        found = fleet.Fleet(sources, n_most, {}, lambda _line: None)
        try:
            await body(found)
        finally:
            await found.close()

    asyncio.run(whole())


@pytest.fixture(autouse=True)
def processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "ModelProcess", Process)


def test_a_model_that_failed_a_moment_ago_drives_out_no_other_one() -> None:
    async def body(f: fleet.Fleet) -> None:
        good, bad = f.members["good"], f.members["bad"]
        await f.load(good)
        with pytest.raises(ApiError, match=r"the model bad could not be loaded: its weights are odd$"):
            await f.load(bad)
        assert not good.is_there and bad.status == {"value": "unloaded", "failed": True, "exit_code": 7}
        await f.load(good)
        with pytest.raises(ApiError, match=r"odd; another model makes room for it again in \d+ s, or by POST") as e:
            await f.load(bad)
        assert 0 < int(e.value.headers["Retry-After"]) <= fleet.RETRY_S and good.is_there and f.n_started == 3
        with pytest.raises(ApiError, match=r"odd$"):  # somebody says that it is mended
            await f.load(bad, anyway=True)
        assert not good.is_there and f.n_started == 4

    run(body)


def test_after_a_while_it_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet, "RETRY_S", 0.0)

    async def body(f: fleet.Fleet) -> None:
        for _ in range(2):
            await f.load(f.members["good"])
            with pytest.raises(ApiError, match=r"odd$"):
                await f.load(f.members["bad"])
        assert f.n_started == 4

    run(body)


def test_where_there_is_room_it_is_tried_at_once() -> None:
    async def body(f: fleet.Fleet) -> None:
        await f.load(f.members["good"])
        for _ in range(2):
            with pytest.raises(ApiError, match=r"odd$"):
                await f.load(f.members["bad"])
        assert f.members["good"].is_there and f.n_started == 3

    run(body, n_most=2)
