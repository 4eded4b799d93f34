"""The transfer itself: huggingface_hub's requests, cache layout and progress bar; interrupted downloads go on."""

from __future__ import annotations

import io
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi, get_hf_file_metadata, hf_hub_download, hf_hub_url
from huggingface_hub.file_download import http_get
from huggingface_hub.utils import WeakFileLock, build_hf_headers, logging  # type: ignore[attr-defined]

from duo.errors import DuoError
from duo.models.hub.failures import FAILURES, NO_NETWORK, hub_error, no_listing, unreachable
from duo.models.hub.listing import Listed, is_blob, is_safe, is_whole
from duo.models.hub.settings import HubSettings
from duo.support.wording import gigabytes

TIMEOUT_S = 10.0  # for an answer, not for a download
# A vocabulary of 256k tokens with its merges takes about 15 MB; later parts of a split model have none.
HEAD_FIRST, HEAD_OTHER = 32 << 20, 4 << 20
MOST_BY_HTTP = 50_000_000_000  # the hub sends larger files by its own protocol only

logging.set_verbosity_error()  # type: ignore[no-untyped-call] # it warns of each retry


_COMMIT = re.compile(r"[0-9a-f]{40}")


class Unreachable(DuoError):  # noqa: N818 - a state of the network
    """No network, or no hub at the other end. Half a sentence: the other half is what the cache has."""


def listing(hub: HubSettings, repo: str) -> tuple[dict[str, Listed], str]:
    """Files of a repository, less those whose names lead out of a folder, and the commit that this is true of.

    Raises Unreachable, or DuoError (unknown, private, too many requests).
    """
    try:
        info = HfApi(endpoint=hub.endpoint, token=hub.token or False, library_name="duo").model_info(
            repo, files_metadata=True, timeout=TIMEOUT_S
        )
    except NO_NETWORK as e:
        raise Unreachable(unreachable(e, hub.endpoint)) from None
    except FAILURES as e:
        raise hub_error(e, repo, hub, hub.cache) from None
    except (LookupError, TypeError, AttributeError, ValueError, RecursionError):  # of JSON, or of what is made of it
        raise Unreachable(no_listing(hub.endpoint)) from None
    if info.siblings is None or not isinstance(info.sha, str) or not _COMMIT.fullmatch(info.sha):
        raise Unreachable(no_listing(hub.endpoint))
    files: dict[str, Listed] = {}
    for f in info.siblings:
        name: object = f.rfilename  # whatever the server says
        size: object = 0 if f.size is None else f.size
        blob: object = f.blob_id if f.lfs is None else f.lfs.sha256
        if not isinstance(name, str) or type(size) is not int or size < 0:
            raise Unreachable(no_listing(hub.endpoint))
        if is_safe(name):
            files[name] = Listed(size, blob if isinstance(blob, str) and is_blob(blob) else "")
    return files, info.sha


def download(hub: HubSettings, repo: str, files: Mapping[str, Listed], commit: str) -> Path:
    """Path of the first of these files, all of them being in the cache. Raises DuoError."""
    paths = []
    try:
        for name, listed in files.items():
            _drop_damaged(hub, repo, name, commit, listed)
        _check_disk(hub, repo, files, commit)
        for name in files:
            paths.append(_file(hub, repo, name, commit))
        ref = _folder(hub, repo) / "refs" / "main"  # what llama.cpp and others look up without a network
        ref.parent.mkdir(parents=True, exist_ok=True)
        ref.write_text(commit)
    except FAILURES as e:
        raise hub_error(e, repo, hub, hub.cache) from None
    return paths[0]


class _EnoughError(Exception):
    """All that was asked for is there, and more is coming."""


class _Head(io.FileIO):
    """A new file that takes `most` bytes."""

    def __init__(self, path: Path, most: int) -> None:
        super().__init__(path, "w")
        self.most = most

    def write(self, data: Any, /) -> int:
        room = self.most - self.tell()
        n = super().write(data[:room])
        if len(data) > room:
            raise _EnoughError
        return n


def heads(hub: HubSettings, repo: str, files: Mapping[str, Listed], commit: str, folder: Path) -> Path:
    """Stand-ins for these files in `folder`: their beginnings, where the headers are, and holes for the weights.

    Returns the path of the first. Raises DuoError.
    """
    made: list[Path] = []
    try:
        for name, (size, _) in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            n = min(size, HEAD_FIRST if not made else HEAD_OTHER)
            headers = build_hf_headers(token=hub.token or False, library_name="duo") | {
                "accept-encoding": "identity",
                "Range": f"bytes=0-{n - 1}",
            }
            url = hf_hub_url(repo, name, revision=commit, endpoint=hub.endpoint)
            with _Head(path, n) as f:
                with suppress(_EnoughError):  # some mirrors send the whole file
                    http_get(url, f, headers=headers, expected_size=n, displayed_filename=f"header of {name}")
                f.truncate(size)
            made.append(path)
    except FAILURES as e:
        raise hub_error(e, repo, hub, Path(tempfile.gettempdir())) from None
    return made[0]


def _folder(hub: HubSettings, repo: str) -> Path:
    return hub.cache / ("models--" + repo.replace("/", "--"))


def _pointer(hub: HubSettings, repo: str, commit: str, name: str) -> Path:
    """Where a file of that commit is found in the cache, mostly a link to its blob."""
    return _folder(hub, repo) / "snapshots" / commit / name


def _drop_damaged(hub: HubSettings, repo: str, name: str, commit: str, listed: Listed) -> None:
    """A file that has not the size it should have: a disk was full, or somebody wrote into it. It is received anew."""
    pointer = _pointer(hub, repo, commit, name)
    if pointer.exists() and not is_whole(pointer, listed):
        hub.note(f"{name} has {pointer.stat().st_size} bytes in the cache and {listed.size} at the hub; it comes again")
        pointer.resolve().unlink()
        pointer.unlink(missing_ok=True)


def _check_disk(hub: HubSettings, repo: str, files: Mapping[str, Listed], commit: str) -> None:
    folder = _folder(hub, repo)
    missing = [f for name, f in files.items() if not _pointer(hub, repo, commit, name).exists()]
    needed = sum(f.size - min(f.size, _begun(folder, f.blob)) for f in missing)
    there = next(p for p in (hub.cache, *hub.cache.parents) if p.exists())
    free = shutil.disk_usage(there).free
    if needed > free:
        raise DuoError(
            f"{repo} needs {gigabytes(needed)} more on the disk of {hub.cache} and {gigabytes(free)} are free; "
            "free some, or set HF_HOME to a larger disk"
        )


def _begun(folder: Path, blob: str) -> int:
    """Bytes of a file that are there."""
    found = (folder / "blobs" / f"{blob}{end}" for end in ("", ".part")) if blob else ()
    return sum(p.stat().st_size for p in found if p.exists())


def _file(hub: HubSettings, repo: str, name: str, commit: str) -> Path:
    """One file. Its data is received here, so that a later call goes on where this one is interrupted; names, links
    and everything else in the cache are huggingface_hub's."""
    pointer = _pointer(hub, repo, commit, name)
    token = hub.token or False
    if not pointer.exists():
        url = hf_hub_url(repo, name, revision=commit, endpoint=hub.endpoint)
        meta = get_hf_file_metadata(url, token=token, timeout=TIMEOUT_S, endpoint=hub.endpoint, library_name="duo")
        # Both become parts of paths, here and in huggingface_hub.
        if not is_blob(meta.etag or "-") or not _COMMIT.fullmatch(meta.commit_hash or commit):
            raise DuoError(f"{hub.endpoint} gives {name} of {repo} a name that no file may have; use another hub")
        if meta.etag and meta.size is not None and meta.size <= MOST_BY_HTTP:
            _receive(hub, repo, name, url, meta.etag, meta.size)
    return Path(
        hf_hub_download(
            repo, name, revision=commit, cache_dir=hub.cache, token=token, endpoint=hub.endpoint, library_name="duo",
        )
    )  # fmt: skip


def _receive(hub: HubSettings, repo: str, name: str, url: str, etag: str, size: int) -> None:
    """The blob that huggingface_hub will look for. url: the hub's, not that of the storage it redirects to, because
    storage is signed for an hour and a large file may break off later; a token does not follow the redirection."""
    blob = _folder(hub, repo) / "blobs" / etag
    part = blob.with_name(f"{etag}.part")
    lock = hub.cache / ".locks" / _folder(hub, repo).name / f"{etag}.lock"
    blob.parent.mkdir(parents=True, exist_ok=True)
    lock.parent.mkdir(parents=True, exist_ok=True)
    headers = build_hf_headers(token=hub.token or False, library_name="duo")
    headers["accept-encoding"] = "identity"  # a range of compressed data would be of another file
    with WeakFileLock(lock):
        if blob.exists():
            return
        had = part.stat().st_size if part.exists() else 0
        if had > size:
            part.unlink()
            had = 0
        with part.open("ab") as f:
            try:
                http_get(
                    url, f, resume_size=had, headers=headers, expected_size=size,
                    displayed_filename=name,
                )  # fmt: skip
            except OSError as e:
                if e.errno is None and "Consistency check" in str(e):
                    f.truncate(0)  # nothing to go on with
                    raise DuoError(
                        f"{name} of {repo} came with another size than the {size} bytes that the hub announced; "
                        "try again"
                    ) from None
                raise
        os.replace(part, blob)
        with suppress(OSError):
            blob.chmod(0o644)
