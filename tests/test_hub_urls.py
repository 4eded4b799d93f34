"""Files that a URL names (--mmproj URL): into duo's cache, resumed, asked for anew by their ETag."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

import pytest
from hub_server import COMMIT, DRAFT, REPO, FakeHub
from parsed_line import params
from vision_models import png, projector

from duo import Duo, DuoError
from duo.cli.commands.serve import name_of
from duo.cli.opening import open_duo
from duo.models.demo import demo_pair
from duo.models.header import read_header
from duo.models.hub import url_file
from duo.models.hub.repository import Hub
from duo.models.hub.url_file import fetch_url

Run = Callable[..., tuple[int, str, str]]
NAME = "tales-Q2_K.gguf"  # any GGUF file will do
ELSEWHERE = "http://127.0.0.1:9"  # discard: nobody listens there


@pytest.fixture
def hub(tmp_path: Path, fake: FakeHub, monkeypatch: pytest.MonkeyPatch) -> Hub:
    """Another hub than the server that has the file."""
    no_pause = SimpleNamespace(**{**vars(time), "sleep": lambda _s: None})
    monkeypatch.setattr("huggingface_hub.file_download.time", no_pause)
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 100_000)
    monkeypatch.setattr(url_file, "cache_folder", lambda: tmp_path / "duo")
    return Hub(endpoint=ELSEWHERE, token=None, cache=tmp_path / "cache", offline=False)


def url_in(fake: FakeHub, name: str = NAME) -> str:
    return f"{fake.url}/{REPO}/resolve/main/{name}"


def error_of(hub: Hub, url: str) -> str:
    with pytest.raises(DuoError) as e:
        fetch_url(hub, url)
    assert "\n" not in str(e.value)
    return str(e.value)


def test_a_file_comes_once(hub: Hub, fake: FakeHub, tmp_path: Path) -> None:
    path = fetch_url(hub, url_in(fake))
    assert (path.name, path.read_bytes()) == (NAME, DRAFT) and path.is_relative_to(tmp_path / "duo" / "urls")
    n_sent = fake.n_sent
    assert fetch_url(hub, url_in(fake)) == path and fake.n_sent == n_sent
    fake.repos["someone/Other"] = {NAME: b"GGUF, but another"}  # of the same name
    assert fetch_url(hub, url_in(fake).replace(REPO, "someone/Other")) != path
    fake.repos[REPO][NAME] = b"GGUF, changed"
    assert fetch_url(hub, url_in(fake)) == path and path.read_bytes() == b"GGUF, changed"
    assert sorted(p.name for p in path.parent.iterdir()) == [NAME, f"{NAME}.etag"]
    assert not hub.cache.exists()  # its tools complain of folders that they do not know


def test_a_download_that_broke_off_goes_on(hub: Hub, fake: FakeHub) -> None:
    fake.cut = [400_000, *[0] * 5]  # at last it gives up
    assert error_of(hub, url_in(fake)).endswith("what has arrived is kept, so start again when the network is back")
    fake.ranges.clear()
    fake.storage = True
    assert fetch_url(hub, url_in(fake)).read_bytes() == DRAFT
    assert fake.ranges == ["bytes=400000-"]


def test_a_file_of_the_hub_is_that_of_its_repository(hub: Hub, fake: FakeHub) -> None:
    mine = replace(hub, endpoint=fake.url)
    for url in (url_in(fake), f"https://huggingface.co/{REPO}/blob/main/{NAME}?download=true"):
        path = fetch_url(mine, url)
        assert path == hub.cache / "models--someone--Tales-GGUF" / "snapshots" / COMMIT / NAME


def test_only_the_hub_gets_the_token(hub: Hub, fake: FakeHub) -> None:
    fake.gated.add(REPO)
    fake.storage = True
    other = replace(hub, token=fake.token)
    assert error_of(other, url_in(fake)) == f"access to {url_in(fake)} is denied (401); download it yourself"
    assert fake.tokens == {""}
    mine = replace(other, endpoint=fake.url)
    url = url_in(fake).replace("main", COMMIT)  # not what -hf takes
    assert fetch_url(mine, url).read_bytes() == DRAFT
    assert fake.tokens == {"", fake.token} and fake.tokens_at_storage == {""}


def test_without_a_network_the_cache_is_used(hub: Hub, fake: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    offline = replace(hub, offline=True)
    assert error_of(offline, url_in(fake)).endswith(f"has no {url_in(fake)}; leave out --offline once to download it")
    path = fetch_url(hub, url_in(fake))
    n_requests = fake.requests.total()
    assert fetch_url(offline, url_in(fake)) == path and fake.requests.total() == n_requests
    del fake.repos[REPO][NAME]
    notes: list[str] = []
    assert fetch_url(replace(hub, note=notes.append), url_in(fake)) == path
    assert notes == [f"{url_in(fake)} cannot be asked for; {NAME} is taken from the cache"]
    assert error_of(hub, f"{ELSEWHERE}/x.gguf").startswith("127.0.0.1:9 cannot be reached (")


@pytest.mark.parametrize(("status", "no_ranges"), [(405, False), (501, True), (403, False)])
def test_a_server_that_does_not_tell_of_files(hub: Hub, fake: FakeHub, status: int, no_ranges: bool) -> None:
    fake.no_head, fake.no_ranges = status, no_ranges
    path = fetch_url(hub, url_in(fake))
    n_downloads = len(fake.ranges)
    assert path.read_bytes() == DRAFT
    assert fetch_url(hub, url_in(fake)) == path and fake.ranges[n_downloads:] == ["" if no_ranges else "bytes=0-0"]
    fake.gated.add(REPO)  # 401
    assert error_of(hub, url_in(fake, "other.gguf")).endswith("is denied (401); download it yourself")


def test_a_damaged_note_of_a_download(tmp_path: Path) -> None:
    file = tmp_path / "m.gguf"
    file.write_bytes(b"GGUF")
    file.with_name("m.gguf.etag").write_bytes(b"\xff")
    assert not url_file.is_current(file, url_file.Answer("x", 4))


def test_a_server_of_no_address(run: Run) -> None:
    said = "duo: 'http://[/m.gguf' is no web address; write it as https://HOST/FILE.gguf\n"
    assert run("serve", "-m", "http://[/m.gguf") == (1, "", said)


def test_a_server_does_not_name_its_model_by_a_signature() -> None:
    for model, name in (("https://h/a/m%20b.Q4.gguf?X-Sig=ab.cd&path=x/y", "m b.Q4"), ("/a/m.b.gguf", "m.b")):
        assert name_of({"pair": None, "hf_repo": None, "model": model}) == name


def test_what_cannot_be_downloaded_is_named(
    hub: Hub, fake: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = url_in(fake, "README.md")
    assert error_of(hub, page) == f"{page} is no GGUF file (a page about it?); give the address of the file itself"
    assert [p for p in tmp_path.rglob("*") if p.is_file() and p.suffix != ".lock"] == []
    secret = url_in(fake, "no.gguf").replace("://", "://me:password@") + "?signature=secret"
    assert error_of(hub, secret) == f"{url_in(fake, 'no.gguf')} does not exist (404); check the URL"
    n_requests = fake.requests.total()
    assert "is one of 3 parts of a model" in error_of(hub, url_in(fake, "big-00001-of-00003.gguf"))
    assert fake.requests.total() == n_requests
    fake.wrong_size = 10
    assert "did not have the" in error_of(hub, url_in(fake))
    monkeypatch.setattr(url_file.shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    assert f"{NAME} needs {len(DRAFT) / 1e6:.0f} MB more" in error_of(hub, url_in(fake))


@pytest.mark.parametrize(
    "url", ["ftp://x/y.gguf", "http://", "http://[::1/x.gguf", "http://x:99999/y", "http://x/\u00e9.gguf",
            f"http://{'x' * 70}.org/y.gguf", "http://x/a b.gguf"],
)  # fmt: skip
def test_what_is_no_web_address_is_refused(hub: Hub, url: str) -> None:
    assert "is no web address" in error_of(hub, url)


@pytest.mark.parametrize(
    ("last", "name"),
    [
        ("%E2%82%AC" * 110 + ".gguf", "\u20ac" * 38 + ".gguf"), ("x" * 300, "x" * 120), ("a%2Fb.gguf", "file.gguf"),
    ],
)  # fmt: skip
def test_names_fit_the_file_system(hub: Hub, fake: FakeHub, last: str, name: str) -> None:
    fake.repos[REPO][unquote(last)] = DRAFT
    assert fetch_url(hub, url_in(fake, last)).name == name


def test_what_is_left_of_another_version_goes(hub: Hub, fake: FakeHub, tmp_path: Path) -> None:
    fake.cut = [400_000, *[0] * 5]
    error_of(hub, url_in(fake))
    assert len([*tmp_path.rglob("*.part")]) == 1
    fake.repos[REPO][NAME] = b"GGUF, changed"
    assert fetch_url(hub, url_in(fake)).read_bytes() == b"GGUF, changed"
    assert [*tmp_path.rglob("*.part")] == []


def test_a_server_that_does_not_know_the_size(hub: Hub, fake: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    session = url_file.get_session()

    @contextmanager
    def stream(*args: Any, **more: Any) -> Iterator[Any]:
        with session.stream(*args, **more) as answer:
            answer.headers["Content-Length"] = size
            yield answer

    monkeypatch.setattr(url_file, "get_session", lambda: SimpleNamespace(stream=stream))
    size = str(60 * 10**9)
    assert "has 60.0 GB, and duo downloads at most 50.0 GB from a URL" in error_of(hub, url_in(fake))
    size = "0"
    assert fetch_url(hub, url_in(fake)).read_bytes() == DRAFT


def test_a_hub_at_a_path_gets_the_token(hub: Hub, fake: FakeHub) -> None:
    fake.gated.add(REPO)
    url = url_in(fake).replace("main", COMMIT)
    mine = replace(hub, endpoint=f"{fake.url}/{REPO.partition('/')[0]}", token=fake.token)
    assert "download it yourself" in error_of(replace(mine, endpoint=mine.endpoint[:-1]), url)
    assert fetch_url(mine, url).read_bytes() == DRAFT
    found = url_file.model_at(mine, f"{mine.endpoint}/{REPO}/resolve/main/{NAME}")
    assert found is not None and found.repo == REPO


def test_a_token_that_may_not_read_it_is_named(hub: Hub, fake: FakeHub) -> None:
    fake.gated.add(REPO)
    url = url_in(fake).replace("main", COMMIT)
    for token, how in (
        (None, "set HF_TOKEN to a token that may read it"),
        ("hf_other", "check the token (HF_TOKEN or --hf-token)"),
    ):
        assert error_of(replace(hub, endpoint=fake.url, token=token), url).endswith(how)


def test_a_projector_by_its_url(fake: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(url_file, "cache_folder", lambda: tmp_path / "duo")
    monkeypatch.setenv("HF_ENDPOINT", ELSEWHERE)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    file = projector(tmp_path / "x.gguf", "mlp", read_header(demo_pair()[0]).n_embd)
    fake.repos[REPO]["mmproj-x.gguf"] = file.read_bytes()
    url = url_in(fake, "mmproj-x.gguf")
    asked: dict[str, Any] = {"images": [png()], "max_tokens": 4, "temperature": 0}
    with Duo(mmproj=str(file), n_ctx=256) as d:
        wanted = d.generate("<__media__> Once", **asked).tokens
    with Duo(mmproj=url, n_ctx=256) as d:
        assert d.generate("<__media__> Once", **asked).tokens == wanted
    given = params("run", "-mmu", url, "--offline", "--no-mmproj", "-p", "x", "-c", "256")
    n_requests = fake.requests.total()
    with open_duo(given, finds_guesses=True) as d:  # --no-mmproj is about the repository's, as in llama.cpp
        assert d.generate("<__media__> Once", **asked).tokens == wanted
    assert fake.requests.total() == n_requests
    target = tmp_path / "target.gguf"
    target.symlink_to(demo_pair()[0])
    file.rename(tmp_path / "mmproj-x.gguf")
    for args, sees in ((("-mm", "auto"), True), (("-mm", "auto", "--no-mmproj"), False), ((), False)):
        with open_duo(params("run", "-m", str(target), "-md", "none", *args, "-p", "x", "-c", "256")) as d:
            found = d.local_model.projector
            assert (found is not None and found.sees) is sees


def test_models_by_their_urls(fake: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(url_file, "cache_folder", lambda: tmp_path / "duo")
    monkeypatch.setenv("HF_ENDPOINT", ELSEWHERE)
    for name, file in zip(("t.gguf", "d.gguf"), demo_pair(), strict=True):
        fake.repos[REPO][name] = file.read_bytes()
    texts = []
    for args in ((), ("-mu", url_in(fake, "t.gguf"), "-md", url_in(fake, "d.gguf"))):
        with open_duo(params("run", *args, "-p", "x", "-c", "256")) as d:
            assert d.draft is not None
            texts.append(d.generate("Once upon a time", max_tokens=8, temperature=0).tokens)
    assert texts[0] == texts[1]
