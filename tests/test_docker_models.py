"""Models of Docker Hub (-dr), from a registry on 127.0.0.1."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from duo.cli.main import main
from duo.errors import AccessDeniedError, BadValueError, DuoError, PeerLostError, UnknownModelError
from duo.models.demo import demo_pair
from duo.models.hub import docker
from duo.models.hub.docker import fetch_image
from duo.models.hub.repository import Hub

MODEL = demo_pair()[1].read_bytes()
GGUF = "application/vnd.docker.ai.gguf.v3"


def digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


class Registry(BaseHTTPRequestHandler):
    images: dict[str, Any]
    blobs: dict[str, bytes]
    asked: list[str]

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self.asked.append(self.path)
        if self.path.startswith("/token?"):
            repo = self.path.partition("scope=repository:")[2].removesuffix(":pull")
            self._send(200, json.dumps({"token": f"of-{repo}"}).encode())
            return
        repo, _, what = self.path.removeprefix("/v2/").rpartition("/")
        repo, _, kind = repo.rpartition("/")
        if self.headers["Authorization"] != f"Bearer of-{repo}" or repo.startswith("private/"):
            self._send(401, b"{}")
        elif kind == "manifests":
            found = self.images.get(f"{repo}:{what}")
            self._send(200 if found else 404, json.dumps(found or {}).encode())
        else:
            self._send(200, self.blobs[what])

    def _send(self, code: int, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Registry]]:
    Registry.images, Registry.blobs, Registry.asked = {}, {}, []
    put("ai/tales:latest", MODEL)
    with ThreadingHTTPServer(("127.0.0.1", 0), Registry) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setattr(docker, "TOKENS", url)
        monkeypatch.setattr(docker, "REGISTRY", url)
        monkeypatch.setattr(docker, "cache_folder", lambda: tmp_path / "duo")
        yield Registry
        server.shutdown()


def put(image: str, data: bytes) -> None:
    licence = {"mediaType": "application/vnd.docker.ai.license", "digest": digest_of(b"licence"), "size": 7}
    model = {"mediaType": GGUF, "digest": digest_of(data), "size": len(data)}
    Registry.images[image] = {"layers": [licence, model]}
    Registry.blobs[digest_of(data)] = data


def test_an_image_comes_once_and_again_if_it_changes(registry: type[Registry]) -> None:
    hub = Hub(offline=False)
    path = fetch_image(hub, "tales")
    assert path.name == "tales-latest.gguf" and path.read_bytes() == MODEL
    registry.asked.clear()
    assert fetch_image(hub, "ai/tales:latest") == path
    assert [a for a in registry.asked if "/blobs/" in a] == []
    put("ai/tales:latest", b"GGUF, changed")
    assert fetch_image(hub, "tales").read_bytes() == b"GGUF, changed"
    assert fetch_image(Hub(offline=True), "tales") == path
    del registry.images["ai/tales:latest"]
    notes: list[str] = []
    assert fetch_image(Hub(offline=False, note=notes.append), "tales") == path
    assert notes == ["ai/tales:latest cannot be asked for; tales-latest.gguf is taken from the cache"]


def test_what_is_wrong_is_one_sentence(registry: type[Registry]) -> None:
    registry.images["ai/empty:latest"] = {"layers": [{"mediaType": "text/plain", "digest": digest_of(b"")}]}
    registry.images["ai/odd:latest"] = {"layers": [{"mediaType": GGUF, "digest": "sha256:../../x"}, 7]}
    registry.images["ai/list:latest"] = [1]
    put("ai/page:latest", b"<html>")
    for name, kind, offline in (
        ("Tales", BadValueError, False),
        ("a/b/c", BadValueError, False),
        ("../tales", BadValueError, False),
        ("tales:", BadValueError, False),
        ("tales", UnknownModelError, True),
        ("tales:q9", UnknownModelError, False),
        ("empty", UnknownModelError, False),
        ("odd", UnknownModelError, False),
        ("list", PeerLostError, False),
        ("page", BadValueError, False),
        ("private/tales", AccessDeniedError, False),
        ("x" * 300, BadValueError, True),
        ("x" * 200 + ":" + "y" * 100, BadValueError, False),
    ):
        with pytest.raises(DuoError) as e:
            fetch_image(Hub(offline=offline), name)
        assert type(e.value) is kind and "\n" not in str(e.value) and "127.0.0.1" not in str(e.value), name
    with pytest.raises(
        UnknownModelError, match=r"^Docker Hub has no public model ai/none:latest \(404\); check the name"
    ):
        fetch_image(Hub(offline=False), "none")


def test_a_damaged_file_is_not_kept(registry: type[Registry]) -> None:
    digest = digest_of(MODEL)
    registry.blobs[digest] = MODEL[:-1] + bytes([MODEL[-1] ^ 1])
    with pytest.raises(PeerLostError, match=r"ai/tales:latest of Docker Hub arrived damaged .*; try again"):
        fetch_image(Hub(offline=False), "tales")
    assert not [f for f in (docker.cache_folder() / docker.FOLDER).rglob("*") if f.is_file() and f.stat().st_size]
    registry.blobs[digest] = MODEL
    assert fetch_image(Hub(offline=False), "tales").read_bytes() == MODEL


def test_a_text_by_a_model_of_docker(registry: type[Registry], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-dr", "tales", "-p", "Once", "-n", "4", "-c", "64", "--temp", "0"]) == 0
    assert capsys.readouterr().out
    assert main(["-dr", "tales", "-hf", "a/b", "-p", "Once"]) == 1
    assert "-hf and -dr both name the same model" in capsys.readouterr().err


def test_a_draft_that_has_no_place_needs_no_download(
    registry: type[Registry], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "draft.gguf").write_bytes(b"of someone")
    assert main(["make-draft", "-dr", "tales", "-o", str(tmp_path / "draft.gguf")]) == 1
    assert "draft.gguf" in capsys.readouterr().err and registry.asked == []
