"""A router with small models, for tests."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from conftest import HANG_S
from hosts import KERNELS

from duo.models.demo import demo_pair
from duo.options.validate import serve_options
from duo.server.listening import listeners
from duo.server.router.fleet import Member
from duo.server.router.service import Router
from duo.server.router.serving import RouterServing
from duo.server.router.sources import known_models
from duo.server.settings import ServerSettings

TARGET, DRAFT = demo_pair()
BODY = {"prompt": "Once upon a time", "n_predict": 12, "temperature": 0}


LONG = {"n_predict": 5000, "ignore_eos": True, "stream": True, "mode": "plain"}  # a second and more


class Served:
    def __init__(self, url: str, serving: RouterServing, router: Router) -> None:
        self.url, self.serving, self.router = url, serving, router

    def post(self, path: str, body: Any, **more: Any) -> httpx.Response:
        return httpx.post(self.url + path, json=body, timeout=HANG_S, **more)

    def get(self, path: str) -> httpx.Response:
        return httpx.get(self.url + path, timeout=HANG_S)

    def states(self) -> dict[str, str]:
        return {m["id"]: m["status"]["value"] for m in self.get("/v1/models").json()["data"]}

    def member(self, name: str) -> Member:
        return self.router.fleet.members[name]

    def pid(self, name: str) -> int:
        child = self.member(name).child
        assert child is not None
        return child.pid


@contextmanager
def routed(folder: Path, *own: str, n_most: int = 2, autoload: bool = True, **given: Any) -> Iterator[Served]:
    asked = {"port": 0, "ui": False, **given}
    settings = ServerSettings.of(asked, "duo")
    found = listeners(serve_options(asked))
    there = threading.Event()
    sources = known_models(folder=folder, presets={}, cached=[], own=["-c", "4096", *KERNELS, *own])
    router = Router(settings, sources, n_most=n_most, autoload=autoload, env=os.environ, say=lambda _line: None)
    serving = RouterServing(router, found, drain_s=HANG_S / 2, ready=there.set)
    thread = threading.Thread(target=serving.run, name="router")
    thread.start()
    try:
        assert there.wait(HANG_S)
        yield Served(found[0].url("http"), serving, router)
    finally:
        serving.end()
        thread.join(HANG_S)
    assert not thread.is_alive() and not router.fleet.folder.exists()


def models_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pair in a folder of its own, two models alone, and a file that is none."""
    path = tmp_path_factory.mktemp("models")
    (path / "pair").mkdir()
    (path / "alone.gguf").symlink_to(TARGET)
    (path / "small.gguf").symlink_to(DRAFT)
    (path / "pair" / "target.gguf").symlink_to(TARGET)
    (path / "pair" / "draft-of-it.gguf").symlink_to(DRAFT)
    (path / "broken.gguf").write_bytes(b"GGUF, but not really")
    return path
