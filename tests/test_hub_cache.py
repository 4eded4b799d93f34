"""What the hub's cache holds: it is used when the hub refuses, completed where it is damaged, and never the user's own
files."""

import hashlib
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import hub_server
import pytest
from hub_server import COMMIT, DRAFT, REPO, TARGET, FakeHub
from rights import of_an_ordinary_user

from duo import DuoError
from duo.models.hub import download as hub_download
from duo.models.hub import listing
from duo.models.hub.repository import Hub, parse

NEXT = "f" * 40  # a commit
NAMES = {"Q2_K": "tales-Q2_K.gguf", "Q4_K_M": "tales-Q4_K_M.gguf"}


@pytest.fixture
def notes() -> list[str]:
    return []


@pytest.fixture
def hub(fake: FakeHub, tmp_path: Path, notes: list[str]) -> Hub:
    return Hub(endpoint=fake.url, token=None, cache=tmp_path / "cache", offline=False, note=notes.append)


@pytest.fixture
def one(hub: Hub) -> Path:
    """The repository's folder."""
    return hub.cache / "models--someone--Tales-GGUF"


def fetched(hub: Hub, quant: str) -> Path:
    return hub.fetch(parse(f"{REPO}:{quant}"))


def error_of(hub: Hub, quant: str) -> str:
    with pytest.raises(DuoError) as e:
        fetched(hub, quant)
    return str(e.value)


def read_only(folder: Path) -> None:
    for path in [folder, *folder.rglob("*")]:
        if not path.is_symlink():
            path.chmod(0o555 if path.is_dir() else 0o444)


def next_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_server, "COMMIT", NEXT)


# ---- what the hub does not give


def test_a_cache_that_may_only_be_read_will_do(
    hub: Hub, one: Path, notes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = fetched(hub, "Q2_K")
    (one / "refs" / "main").write_text("")
    read_only(hub.cache)
    with of_an_ordinary_user():
        assert (fetched(hub, "Q2_K"), notes) == (path, [])
        next_commit(monkeypatch)  # of the same data, whose link is missing
        assert fetched(hub, "Q2_K") == path
        assert len(notes) == 1 and "could not be written to" in notes[0]
        assert notes[0].endswith(f"; {path.name} of an earlier commit of {REPO} is taken from the cache")
        assert "could not be written to" in error_of(hub, "Q4_K_M")
    for folder in (hub.cache, *hub.cache.rglob("*")):
        if folder.is_dir():
            folder.chmod(0o755)


def busy(fake: FakeHub, _: pytest.MonkeyPatch) -> None:
    fake.busy = 100


def broken(_: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_server._Handler, "_list", lambda self, _repo: self._refuse(503))


def gone(fake: FakeHub, _: pytest.MonkeyPatch) -> None:
    del fake.repos[REPO]


@pytest.mark.parametrize(
    ("fault", "token", "words"),
    [
        (busy, None, "accepts no more requests for now (429)"),
        (broken, None, "answered 503"),
        (gone, None, f"there is no repository {REPO}"),
        (lambda *_: None, "hf_old", "is denied (401)"),
    ],
    ids=["429", "503", "404", "401"],
)
def test_a_hub_that_refuses_leaves_the_cache(
    hub: Hub,
    fake: FakeHub,
    notes: list[str],
    monkeypatch: pytest.MonkeyPatch,
    fault: Callable[[FakeHub, pytest.MonkeyPatch], None],
    token: str | None,
    words: str,
) -> None:
    path = fetched(hub, "Q2_K")
    fault(fake, monkeypatch)
    refused = replace(hub, token=token)
    assert fetched(refused, "Q2_K") == path
    assert len(notes) == 1 and words in notes[0]
    assert notes[0].endswith(f"; {path.name} of {REPO} is taken from the cache")
    assert words in error_of(refused, "Q4_K_M") and "cache" not in error_of(refused, "Q4_K_M")


def test_a_new_commit_that_cannot_be_had_leaves_the_one_before(
    hub: Hub, fake: FakeHub, notes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = fetched(hub, "Q2_K")
    next_commit(monkeypatch)
    fake.repos[REPO][path.name] = b"GGUF, but newer"
    fake.gated.add(REPO)
    assert fetched(hub, "Q2_K") == path
    assert len(notes) == 1 and "is gated" in notes[0]
    assert notes[0].endswith(f"; {path.name} of an earlier commit of {REPO} is taken from the cache")
    # What else the cache has is not what was asked for.
    assert error_of(hub, "Q4_K_M").startswith(f"{REPO} is gated")
    with pytest.raises(DuoError, match="is gated"):
        hub.fetch(parse(REPO))  # Q4_K_M
    with pytest.raises(DuoError, match="is gated"):
        hub.fetch_head(parse(f"{REPO}:Q2_K"), ("mmproj",))
    fake.gated.clear()
    n_sent = fake.n_sent
    assert hub.fetch_head(parse(f"{REPO}:Q2_K"), ("mtp-",)) is None  # and not the model of the new commit
    assert fake.n_sent == n_sent


# ---- snapshots of several commits


def test_offline_each_commit_is_searched(hub: Hub, one: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    earlier = fetched(hub, "Q2_K")
    next_commit(monkeypatch)
    later = fetched(hub, "Q4_K_M")
    offline = replace(hub, offline=True)
    assert [fetched(offline, quant) for quant in NAMES] == [earlier, later]
    fetched(hub, "Q2_K")
    assert fetched(offline, "Q2_K") == later.with_name(earlier.name)  # the newest
    (one / "refs" / "main").write_text(COMMIT)
    assert fetched(offline, "Q2_K") == earlier
    assert error_of(offline, "Q8_0").startswith("there is no Q8_0 in the cache")
    (one / "refs" / "main").write_text(NEXT)
    with pytest.raises(DuoError, match="matches 2 files"):  # in the newest, and one of them in the other
        offline.fetch(parse(REPO, "tales-*.gguf"))


def test_notes_are_logged_if_nobody_takes_them(hub: Hub, fake: FakeHub, caplog: pytest.LogCaptureFixture) -> None:
    path = fetched(hub, "Q2_K")
    quiet = Hub(endpoint=fake.url, token=None, cache=hub.cache, offline=False)
    del fake.repos[REPO]
    assert fetched(quiet, "Q2_K") == path
    assert [r.levelname for r in caplog.records if r.name == "duo"] == ["WARNING"]
    assert caplog.messages[-1].endswith(f"{path.name} of {REPO} is taken from the cache")


def test_an_exact_name_counts_more_than_a_similar_one() -> None:
    assert listing.choose(["m-BF16.gguf", "m-F16.gguf"], "F16") == "m-F16.gguf"
    assert listing.choose(["m-TQ1_0.gguf", "m-Q1_0.gguf"], "q1_0") == "m-Q1_0.gguf"
    assert listing.choose(["m-UD-Q4_K_XL.gguf"], "UD-Q4_K_XL") == "m-UD-Q4_K_XL.gguf"
    assert listing.choose(["m-BF16.gguf"], "F16") == "m-BF16.gguf"  # as llama.cpp


# ---- what may be deleted, and what is damaged


@pytest.mark.parametrize("place", ["own.gguf", "cache/own.gguf", "cache/models--someone--Other-GGUF/blobs/0123"])
def test_a_file_that_is_not_of_the_repository_is_not_deleted(hub: Hub, one: Path, tmp_path: Path, place: str) -> None:
    own = tmp_path / place
    own.parent.mkdir(parents=True, exist_ok=True)
    own.write_bytes(b"GGUF, my own")
    for link in (one / "snapshots" / COMMIT / NAMES["Q2_K"], one / "blobs" / hashlib.sha256(TARGET).hexdigest()):
        link.parent.mkdir(parents=True)
        link.symlink_to(own)
    (one / "snapshots" / COMMIT / NAMES["Q4_K_M"]).symlink_to(Path("../../blobs", link.name))
    assert [fetched(hub, quant).read_bytes() for quant in NAMES] == [DRAFT, TARGET]
    assert own.read_bytes() == b"GGUF, my own"


def test_a_damaged_file_on_another_disk_is_replaced(
    hub: Hub, one: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_SYMLINKS", True)
    large, one_file = tmp_path / "large", NAMES["Q2_K"]
    (large / COMMIT).mkdir(parents=True)
    (large / COMMIT / one_file).write_bytes(DRAFT[:-1])
    one.mkdir(parents=True)
    (one / "snapshots").symlink_to(large)
    assert fetched(hub, "Q2_K").read_bytes() == (large / COMMIT / one_file).read_bytes() == DRAFT


def test_the_damaged_data_of_another_commit_is_downloaded_again(
    hub: Hub, notes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = fetched(hub, "Q2_K")
    path.resolve().write_bytes(DRAFT[:-1])
    next_commit(monkeypatch)
    assert fetched(hub, "Q2_K").read_bytes() == path.read_bytes() == DRAFT
    size = len(DRAFT)
    words = f"{path.name} has {size - 1} bytes in the cache and {size} on the hub; it is downloaded again"
    assert notes == [words]


def test_a_damaged_half_is_downloaded_again(hub: Hub, one: Path, fake: FakeHub, notes: list[str]) -> None:
    half = bytearray(DRAFT[:-500])
    half[100_000:200_000] = bytes(100_000)  # of a power failure
    part = one / "blobs" / f"{hashlib.sha256(DRAFT).hexdigest()}.part"
    part.parent.mkdir(parents=True)
    part.write_bytes(half)
    assert fetched(hub, "Q2_K").read_bytes() == DRAFT
    assert fake.ranges == [f"bytes={len(half)}-", ""]
    assert notes == [f"what was kept of an earlier download of {NAMES['Q2_K']} is damaged; it is downloaded again"]
    fake.etag = "0" * 64  # another hub's mistake
    part.with_name(f"{fake.etag}.part").write_bytes(DRAFT)
    (one / "snapshots" / COMMIT / NAMES["Q2_K"]).unlink()
    assert error_of(hub, "Q2_K").startswith(f"{NAMES['Q2_K']} of {REPO} arrived damaged")
    assert [p.name for p in part.parent.iterdir()] == [part.stem]


# ---- disks


def test_a_disk_without_links_has_a_model_once(
    hub: Hub, one: Path, fake: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_SYMLINKS", True)
    path = fetched(hub, "Q2_K")
    assert path.read_bytes() == DRAFT and not path.is_symlink()
    assert [p for p in one.rglob("*") if p.is_file() and p.stat().st_size > 100] == [path]
    n_sent = fake.n_sent
    assert fetched(hub, "Q2_K") == path and fake.n_sent == n_sent
    # A blob of another program is copied, and the copy needs space.
    (one / "blobs" / hashlib.sha256(TARGET).hexdigest()).write_bytes(TARGET)
    monkeypatch.setattr(hub_download.shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    assert f"{REPO} needs 8 MB more" in error_of(hub, "Q4_K_M")


def test_a_repository_on_another_disk_has_the_space_of_that(
    hub: Hub, one: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = tmp_path / "large"
    large.mkdir()
    hub.cache.mkdir()
    one.symlink_to(large)

    def usage(path: Path) -> SimpleNamespace:
        return SimpleNamespace(free=10**12 if os.path.realpath(path).startswith(str(large)) == is_large else 1000)

    monkeypatch.setattr(hub_download.shutil, "disk_usage", usage)
    is_large = False
    assert f"more on the disk of {large}" in error_of(hub, "Q2_K")
    is_large = True
    path = fetched(hub, "Q2_K")
    path.resolve().write_bytes(b"GGUF, shortened")
    assert fetched(hub, "Q2_K").read_bytes() == DRAFT
