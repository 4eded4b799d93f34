"""A hub on 127.0.0.1 that speaks as much of the Hugging Face Hub's protocol as downloads need, with faults to order."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from waits import HANG_S, join

from duo.models.demo import demo_pair

COMMIT = "0123456789abcdef0123456789abcdef01234567"
ENVIRONMENT = ("HF_TOKEN", "HF_HUB_OFFLINE", "HF_HUB_CACHE", "HF_ENDPOINT")  # that a user may have set

TARGET, DRAFT = (p.read_bytes() for p in demo_pair())
REPO, SPLIT = "someone/Tales-GGUF", "someone/Long-Tales-GGUF"
PARTS = {f"Q8_0/long-Q8_0-0000{i}-of-00003.gguf": bytes([i]) * 20_000 for i in (1, 2, 3)}


@dataclass
class FakeHub:
    """Repositories as files' bytes by name, and what goes wrong with them."""

    repos: dict[str, dict[str, bytes]] = field(default_factory=dict)
    gated: set[str] = field(default_factory=set)  # readable with a token only
    token: str = "hf_right"
    cut: list[int] = field(default_factory=list)  # the next downloads break off after so many bytes
    wrong_size: int = 0  # so many bytes fewer are sent than announced
    busy: int = 0  # so many answers of 429 to come
    retry_after: str = "7"
    chunk_s: float = 0.0  # pause after each 16 KiB
    storage: bool = False  # files are elsewhere, as the real hub's: under another name of this server
    answer: bytes | None = None  # instead of a list of files
    etag: str = ""  # instead of a file's sha256
    no_head: int = 0  # files are not told of: this status instead
    no_ranges: bool = False  # a whole file is sent, whatever was asked for
    url: str = ""
    requests: Counter[str] = field(default_factory=Counter)  # by kind: list, head, get
    ranges: list[str] = field(default_factory=list)  # of downloads, "" for a whole file
    n_sent: int = 0  # bytes of files
    tokens: set[str] = field(default_factory=set)
    tokens_at_storage: set[str] = field(default_factory=set)


def tales() -> FakeHub:
    """The demo pair in a repository, and a split model in another."""
    files = {
        "README.md": b"tales",
        "mmproj-tales-Q4_K_M.gguf": b"an image encoder",
        "tales-Q2_K.gguf": DRAFT,
        "tales-Q4_K_M.gguf": TARGET,
        "tales-Q8_0.gguf": b"GGUF, but another",
    }
    return FakeHub({REPO: files, SPLIT: dict(PARTS)})


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: FakeHub

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.hub.requests["head"] += 1
        if self.hub.no_head:
            self._refuse(self.hub.no_head)
        else:
            self._file(with_body=False)

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        if path.startswith("/api/models/"):
            self.hub.requests["list"] += 1
            self._list(path.removeprefix("/api/models/").split("/revision/")[0])
        else:
            self.hub.requests["get"] += 1
            self._file(with_body=True)

    def _token(self) -> str:
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        self.hub.tokens.add(token)
        return token

    def _refuse(self, code: int, error: str = "", message: str = "no", **headers: str) -> None:
        body = json.dumps({"error": message}).encode()
        self.send_response(code)
        if error:
            self.send_header("X-Error-Code", error)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _list(self, repo: str) -> None:
        token = self._token()
        if self.hub.busy > 0:
            self.hub.busy -= 1
            self._refuse(429, Retry_After=self.hub.retry_after)
        elif token and token != self.hub.token:
            self._refuse(401, message="Invalid credentials in Authorization header")
        elif repo not in self.hub.repos:
            # As the hub: without a token it does not say whether a repository is private or is not.
            self._refuse(404 if token else 401, "RepoNotFound", "Repository not found")
        else:
            files = [{"rfilename": n, "size": len(d), "lfs": {"size": len(d), "sha256": hashlib.sha256(d).hexdigest(),
                      "pointerSize": 100}} for n, d in sorted(self.hub.repos[repo].items())]  # fmt: skip
            body = json.dumps({"id": repo, "modelId": repo, "sha": COMMIT, "siblings": files}).encode()
            body = body if self.hub.answer is None else self.hub.answer
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def _file(self, *, with_body: bool) -> None:
        path = unquote(urlsplit(self.path).path)
        at_storage = path.startswith("/storage/")
        repo, _, rest = path.removeprefix("/storage").lstrip("/").partition("/resolve/")
        name = rest.partition("/")[2]
        if at_storage:
            self.hub.tokens_at_storage.add(self.headers.get("Authorization", ""))
        if repo in self.hub.gated and not at_storage and self._token() != self.hub.token:
            self._refuse(401, "GatedRepo", "Access to this model is restricted")
            return
        data = self.hub.repos.get(repo, {}).get(name)
        if data is None:
            self._refuse(404, "EntryNotFound", "Entry not found")
            return
        if self.hub.storage and not at_storage:
            self.send_response(302)
            self.send_header("X-Linked-ETag", f'"{hashlib.sha256(data).hexdigest()}"')
            self.send_header("X-Linked-Size", str(len(data)))
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("Location", self.hub.url.replace("127.0.0.1", "localhost") + "/storage" + path)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        asked = "" if self.hub.no_ranges else self.headers.get("Range", "")
        begin, _, end = asked.removeprefix("bytes=").partition("-")
        first, last = int(begin or 0), int(end or len(data) - 1)
        self.send_response(206 if asked else 200)
        self.send_header("ETag", f'"{self.hub.etag or hashlib.sha256(data).hexdigest()}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("Accept-Ranges", "bytes")
        if asked:
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(data)}")
        part = data[first : last + 1]
        if with_body and self.hub.wrong_size:
            part = part[: -self.hub.wrong_size]
        self.send_header("Content-Length", str(len(part)))
        if with_body:  # before the client has the headers, which may be all that it reads
            self.hub.ranges.append(asked)
        self.end_headers()
        if with_body:
            self._send(part)

    def _send(self, data: bytes) -> None:
        with suppress(ConnectionError):  # who asked may be gone
            self._send_all(data)

    def _send_all(self, data: bytes) -> None:
        cut = self.hub.cut.pop(0) if self.hub.cut else len(data)
        for i in range(0, min(cut, len(data)), 16384):
            piece = data[i : min(i + 16384, cut)]
            self.wfile.write(piece)
            self.hub.n_sent += len(piece)
            time.sleep(self.hub.chunk_s)
        if cut < len(data):
            self.wfile.flush()
            self.close_connection = True  # in the middle of what was announced


@contextmanager
def serving(hub: FakeHub) -> Iterator[FakeHub]:
    """Sets hub.url while it runs."""
    handler = type("Handler", (_Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        join(thread)


def run_duo(fake: FakeHub, cache: Path, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
    environment: dict[str, Any] = {**os.environ, "HF_ENDPOINT": fake.url, "HF_HUB_CACHE": str(cache), **env}
    return subprocess.run(
        [sys.executable, "-m", "duo", *args], env=environment, stdin=subprocess.DEVNULL, capture_output=True,
        text=True, timeout=HANG_S, check=False,
    )  # fmt: skip
