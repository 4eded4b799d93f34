"""Events of a router's models, for who listens (/models/sse)."""

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from conftest import HANG_S
from routed import Served, models_folder, routed
from waits import wait_until

from duo.server.router import model_events
from duo.server.router.model_events import ModelEvents

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return models_folder(tmp_path_factory)


@contextmanager
def listening(server: Served) -> Iterator[Iterator[dict[str, Any]]]:
    """The events of the models from now on."""
    with httpx.stream("GET", server.url + "/models/sse", timeout=HANG_S) as answer:
        assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/event-stream")
        yield (json.loads(line.removeprefix("data: ")) for line in answer.iter_lines() if line.startswith("data: "))


@pytest.mark.daily
@pytest.mark.slow
def test_whoever_listens_hears_what_becomes_of_the_models(folder: Path) -> None:
    def told(event: dict[str, Any]) -> tuple[Any, ...]:
        data = event["data"]
        return event["model"], event["event"], data["status"], data.get("exit_code"), data.get("info", {}).get("id")

    with routed(folder, sse_ping_interval=1) as server:
        with listening(server) as gone:
            assert server.router.fleet.events.n_listeners == 1
            assert server.post("/models/load", {"model": "broken"}).status_code == 503
            assert told(next(gone)) == ("broken", "model_status", "loading", None, None)
            assert told(next(gone)) == ("broken", "status_change", "unloaded", 1, None)
        wait_until(lambda: server.router.fleet.events.n_listeners == 0)
        with listening(server) as events, listening(server) as others:
            server.post("/models/load", {"model": "small"})
            found = [told(next(events)) for _ in range(2)]
            os.kill(server.pid("small"), signal.SIGKILL)
            found.append(told(next(events)))
            server.post("/models/load", {"model": "small"})
            server.post("/models/unload", {"model": "small"})
            found += [told(next(events)) for _ in range(3)]
            assert [told(next(others)) for _ in range(6)] == found
            begun = [
                ("small", "model_status", "loading", None, None),
                ("small", "status_change", "loaded", None, "small"),
            ]
            ends = [("small", "status_change", "unloaded", code, None) for code in (-signal.SIGKILL, 0)]
            assert found == [*begun, ends[0], *begun, ends[1]]
            server.serving.end()
            assert list(events) == list(others) == []  # they end with the server, as streams do


def test_a_listener_that_does_not_read_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_events, "N_WAITING", 3)

    async def listen() -> tuple[list[Any], list[Any]]:
        events = ModelEvents()
        with events.listen() as slow, events.listen() as quick:
            heard = []
            for i in range(5):
                events.ended("a", i)
                heard.append(await quick.next())
            assert events.n_listeners == 2
            return [await slow.next() for _ in range(4)], heard

    slow, quick = asyncio.run(listen())
    assert [e and e["data"]["exit_code"] for e in slow] == [0, 1, 2, None]
    assert [e["data"]["exit_code"] for e in quick] == [0, 1, 2, 3, 4]
