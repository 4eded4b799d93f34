"""The models of a router: who waits for room, and what is read anew. A stand-in takes the place of a process."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from conftest import HANG_S

from duo.server.errors import ApiError
from duo.server.router.fleet import Fleet
from duo.server.router.routes import answer_of
from duo.server.router.sources import ModelSource


class FakeChild:
    args = ()
    exit_code = None

    def __init__(self, source: ModelSource, *_: Any, **_more: Any) -> None:
        self.name, self.is_alive = source.name, False

    async def start(self, begun: Callable[[], None]) -> None:
        await asyncio.sleep(0)
        self.is_alive = True
        begun()

    async def about(self) -> dict[str, Any]:
        return {}

    async def stop(self) -> None:
        await asyncio.sleep(0)
        self.is_alive = False


def run(test: Callable[[Fleet], Coroutine[Any, Any, None]], monkeypatch: pytest.MonkeyPatch, n_most: int = 1) -> None:
    monkeypatch.setattr("duo.server.router.fleet.ModelProcess", FakeChild)

    async def whole() -> None:
        fleet = Fleet({n: ModelSource(n, ()) for n in "abc"}, n_most, {}, lambda _line: None)
        try:
            await asyncio.wait_for(test(fleet), HANG_S)
        finally:
            await fleet.close()

    asyncio.run(whole())


def loaded(fleet: Fleet) -> str:
    return "".join(name for name, m in fleet.members.items() if m.is_there)


async def until_all_wait() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def test_first_come_first_served(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(fleet: Fleet) -> None:
        ended: list[str] = []

        async def ask(name: str) -> None:
            await fleet.load(fleet.members[name])
            with fleet.used(fleet.members[name]):
                await asyncio.sleep(0)
            ended.append(name)

        await fleet.load(fleet.members["a"])
        with fleet.used(fleet.members["a"]):
            waiting = [asyncio.create_task(ask(name)) for name in "bcb"]
            await until_all_wait()
            assert (loaded(fleet), ended) == ("a", [])
        await asyncio.gather(*waiting)
        assert ended == ["b", "b", "c"] and loaded(fleet) == "c"

    run(test, monkeypatch)


def test_only_as_many_go_as_are_in_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(fleet: Fleet) -> None:
        await fleet.load(fleet.members["a"])
        await fleet.load(fleet.members["b"])
        with fleet.used(fleet.members["a"]):
            await asyncio.gather(*(fleet.load(fleet.members["c"]) for _ in range(3)))
        assert loaded(fleet) == "ac"

    run(test, monkeypatch, n_most=2)


def test_who_goes_away_costs_the_loaded_model_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(fleet: Fleet) -> None:
        await fleet.load(fleet.members["a"])
        with fleet.used(fleet.members["a"]):
            for name in "bc":  # the second one waits behind the first
                asking = asyncio.create_task(fleet.load(fleet.members[name]))
                await until_all_wait()
                asking.cancel()
            await until_all_wait()
            assert fleet.members["b"].loading is fleet.members["c"].loading is None
        await until_all_wait()
        assert loaded(fleet) == "a"

    run(test, monkeypatch)


def test_a_model_that_is_unloaded_while_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(fleet: Fleet) -> None:
        await fleet.load(fleet.members["a"])
        with fleet.used(fleet.members["a"]):
            asking = asyncio.create_task(fleet.load(fleet.members["b"]))
            await until_all_wait()
            await fleet.unload(fleet.members["b"])
            with pytest.raises(ApiError, match="was unloaded"):
                await asking
        assert loaded(fleet) == "a"

    run(test, monkeypatch)


def test_models_that_are_read_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(fleet: Fleet) -> None:
        for name in "abc":
            await fleet.load(fleet.members[name])
        kept, children = fleet.members["a"], {n: m.child for n, m in fleet.members.items()}
        await fleet.replace(
            {"a": ModelSource("a", ()), "b": ModelSource("b", ("-ngl", "1")), "d": ModelSource("d", ())}
        )
        assert "".join(fleet.members) == "abd" and fleet.members["a"] is kept and loaded(fleet) == "a"
        assert [n for n, child in children.items() if child is not None and child.is_alive] == ["a"]
        await fleet.load(fleet.members["d"])
        assert loaded(fleet) == "ad"

    run(test, monkeypatch, n_most=0)


def test_a_request_for_a_model_that_is_not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without autoload the status is llama-server's."""

    async def test(fleet: Fleet) -> None:
        service: Any = SimpleNamespace(fleet=fleet)
        with pytest.raises(ApiError, match="POST /models/load") as e, ExitStack() as stack:
            await answer_of(service, fleet.members["a"], MagicMock(), stack, loads=False)
        assert e.value.status == 400

    run(test, monkeypatch)


def test_a_model_that_was_replaced_while_a_request_held_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(fleet: Fleet) -> None:
        old = fleet.members["a"]
        await fleet.load(old)
        await fleet.replace({n: ModelSource(n, ("-c", "512") if n == "a" else ()) for n in "abc"})
        assert not old.is_there and fleet.members["a"] is not old
        with pytest.raises(ApiError, match="has been unloaded"):
            await fleet.load(old)
        assert loaded(fleet) == ""
        await fleet.load(fleet.members["a"])
        assert loaded(fleet) == "a"

    run(test, monkeypatch)
