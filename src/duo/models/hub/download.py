"""Downloads with huggingface_hub's requests, cache layout and progress bar. Interrupted downloads are resumed."""

from __future__ import annotations

import io
import os
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi, get_hf_file_metadata, hf_hub_download, hf_hub_url
from huggingface_hub.file_download import are_symlinks_supported, http_get
from huggingface_hub.utils import WeakFileLock, build_hf_headers, logging  # type: ignore[attr-defined]
from huggingface_hub.utils.sha import sha_fileobj

from duo.errors import DoesNotFitError, PeerLostError
from duo.models.hub.failures import FAILURES, NO_NETWORK, hub_error, no_listing, unreachable
from duo.models.hub.listing import HubFile, Listing, is_blob, is_safe, is_whole
from duo.models.hub.settings import HubSettings
from duo.support.wording import gigabytes

TIMEOUT_S = 10.0  # for the response, not for the whole download
# A vocabulary of 256k tokens with its merges takes about 15 MB. Only the first part of a split model has one.
HEAD_FIRST, HEAD_OTHER = 32 << 20, 4 << 20
MOST_BY_HTTP = 50_000_000_000  # for larger files the hub requires its own protocol

logging.set_verbosity_error()  # type: ignore[no-untyped-call] # otherwise it warns at each retry


_COMMIT = re.compile(r"[0-9a-f]{40}")


class UnreachableError(PeerLostError):
    """No network, or no hub at the other end. The message is half a sentence; what the cache has is the other half."""


def listing(hub: HubSettings, repo: str) -> Listing:
    """The files of a repository, without those whose names lead out of its folder, and the commit.

    Raises UnreachableError, and what hub_error returns (unknown, private, too many requests).
    """
    try:
        info = HfApi(endpoint=hub.endpoint, token=hub.token or False, library_name="duo").model_info(
            repo, files_metadata=True, timeout=TIMEOUT_S
        )
    except NO_NETWORK as e:
        raise UnreachableError(unreachable(e, hub.endpoint)) from None
    except FAILURES as e:
        raise hub_error(e, repo, hub, hub.cache) from None
    except (LookupError, TypeError, AttributeError, ValueError, RecursionError):
        # The answer is not JSON, or has another structure.
        raise UnreachableError(no_listing(hub.endpoint)) from None
    if info.siblings is None or not isinstance(info.sha, str) or not _COMMIT.fullmatch(info.sha):
        raise UnreachableError(no_listing(hub.endpoint))
    files: dict[str, HubFile] = {}
    for f in info.siblings:
        name: object = f.rfilename  # may be anything that the server sends
        size: object = 0 if f.size is None else f.size
        blob: object = f.blob_id if f.lfs is None else f.lfs.sha256
        if not isinstance(name, str) or type(size) is not int or size < 0:
            raise UnreachableError(no_listing(hub.endpoint))
        if is_safe(name):
            files[name] = HubFile(size, blob if isinstance(blob, str) and is_blob(blob) else "")
    return files, info.sha


def download(hub: HubSettings, repo: str, files: Mapping[str, HubFile], commit: str) -> Path:
    """Gets these files into the cache. Returns the path of the first. Raises what hub_error returns, and
    DoesNotFitError."""
    paths = []
    try:
        _check_disk(hub, repo, files, commit)
        for name in files:
            paths.append(_file(hub, repo, name, commit))
    except FAILURES as e:
        raise hub_error(e, repo, hub, hub.cache) from None
    with suppress(OSError):  # a cache that may only be read does without
        _write_ref(_folder(hub, repo) / "refs" / "main", commit)
    return paths[0]


def _write_ref(ref: Path, commit: str) -> None:
    """llama.cpp and others read it when they are offline. Raises OSError."""
    if not ref.exists() or ref.read_text("utf-8", errors="replace") != commit:
        ref.parent.mkdir(parents=True, exist_ok=True)
        ref.write_text(commit)


class _EnoughError(Exception):
    """The requested bytes have arrived, and the server sends more."""


class _Head(io.FileIO):
    """A new file that accepts at most `most` bytes."""

    def __init__(self, path: Path, most: int) -> None:
        super().__init__(path, "w")
        self.most = most

    def write(self, data: Any, /) -> int:
        room = self.most - self.tell()
        n = super().write(data[:room])
        if len(data) > room:
            raise _EnoughError
        return n


def heads(hub: HubSettings, repo: str, files: Mapping[str, HubFile], commit: str, folder: Path) -> Path:
    """Makes stand-ins for these files in `folder`: their beginnings with the headers, and holes for the weights.

    Returns the path of the first. Raises what hub_error returns.
    """
    paths: list[Path] = []
    try:
        for name, (size, _) in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            n = min(size, HEAD_FIRST if not paths else HEAD_OTHER)
            headers = build_hf_headers(token=hub.token or False, library_name="duo") | {
                "accept-encoding": "identity",
                "Range": f"bytes=0-{n - 1}",
            }
            url = hf_hub_url(repo, name, revision=commit, endpoint=hub.endpoint)
            with _Head(path, n) as f:
                with suppress(_EnoughError):  # some mirrors send the whole file
                    http_get(url, f, headers=headers, expected_size=n, displayed_filename=f"header of {name}")
                f.truncate(size)
            paths.append(path)
    except FAILURES as e:
        raise hub_error(e, repo, hub, Path(tempfile.gettempdir())) from None
    return paths[0]


def _folder(hub: HubSettings, repo: str) -> Path:
    return hub.cache / ("models--" + repo.replace("/", "--"))


def _pointer(hub: HubSettings, repo: str, commit: str, name: str) -> Path:
    """The file of that commit in the cache, usually a link to its blob."""
    return _folder(hub, repo) / "snapshots" / commit / name


def drop_damaged(hub: HubSettings, repo: str, files: Mapping[str, HubFile], commit: str) -> None:
    """Deletes files of the wrong size, so that they are downloaded again. Raises DuoError."""
    for name, listed in files.items():
        try:
            _drop_damaged(hub, repo, name, _pointer(hub, repo, commit, name), listed)
        except OSError as e:
            raise hub_error(e, repo, hub, hub.cache) from None


def _drop_damaged(hub: HubSettings, repo: str, name: str, path: Path, listed: HubFile) -> None:
    """Deletes the file if its size is wrong: a disk was full, or it was changed. Raises OSError."""
    if not path.exists() or is_whole(path, listed):
        return
    n_bytes, folder = path.stat().st_size, _folder(hub, repo)
    hub.note(f"{name} has {n_bytes} bytes in the cache and {listed.size} on the hub; it is downloaded again")
    _delete(path, (folder, folder / "snapshots", folder / "blobs"))  # each may be a link to another disk


def _delete(path: Path, folders: Sequence[Path]) -> None:
    """The file and the links that lead to it, as far as they lie in these folders: a user may have put a link to a file
    of his own there, or to that of another repository. Raises OSError."""
    own = [folder.resolve() for folder in folders]
    while any(path.parent.resolve().is_relative_to(folder) for folder in own):
        following = path.parent / os.readlink(path) if path.is_symlink() else None
        path.unlink(missing_ok=True)
        if following is None:
            break
        path = following


def _check_disk(hub: HubSettings, repo: str, files: Mapping[str, HubFile], commit: str) -> None:
    folder = _folder(hub, repo)
    missing = [f for name, f in files.items() if not _pointer(hub, repo, commit, name).exists()]
    needed = sum(f.size - min(f.size, _begun(folder, f.blob)) for f in missing)
    # Both may be links to another disk.
    free = shutil.disk_usage(next(p for p in (folder / "blobs", folder, *folder.parents) if p.exists())).free
    if needed > free:
        where = folder.resolve() if folder.is_symlink() else hub.cache
        raise DoesNotFitError(
            f"{repo} needs {gigabytes(needed)} more on the disk of {where}, but only {gigabytes(free)} are free; "
            "free some space, or set LLAMA_CACHE to a folder on a larger disk"
        )


def _begun(folder: Path, blob: str) -> int:
    """Bytes of a file that have been downloaded, and need no more space."""
    files = [p for end in ("", ".part") if blob and (p := folder / "blobs" / f"{blob}{end}").exists()]
    # Without links huggingface_hub copies the data.
    return sum(p.stat().st_size for p in files if p.suffix or are_symlinks_supported(folder))


def _file(hub: HubSettings, repo: str, name: str, commit: str) -> Path:
    """One file. Its data is received here, so that a later call can resume an interrupted download. huggingface_hub
    makes the names, the links and everything else in the cache."""
    pointer = _pointer(hub, repo, commit, name)
    token = hub.token or False
    if not pointer.exists():
        url = hf_hub_url(repo, name, revision=commit, endpoint=hub.endpoint)
        meta = get_hf_file_metadata(url, token=token, timeout=TIMEOUT_S, endpoint=hub.endpoint, library_name="duo")
        # Both become parts of paths, here and in huggingface_hub.
        if not is_blob(meta.etag or "-") or not _COMMIT.fullmatch(meta.commit_hash or commit):
            raise PeerLostError(f"{hub.endpoint} sends an invalid file name for {name} of {repo}; use another hub")
        if meta.etag and meta.size is not None:  # of another commit, whose size nobody has checked
            _drop_damaged(hub, repo, name, _folder(hub, repo) / "blobs" / meta.etag, HubFile(meta.size, meta.etag))
        if meta.etag and meta.size is not None and meta.size <= MOST_BY_HTTP:
            _receive(hub, repo, name, pointer, url, meta.etag, meta.size)
    return Path(
        hf_hub_download(
            repo, name, revision=commit, cache_dir=hub.cache, token=token, endpoint=hub.endpoint, library_name="duo",
        )
    )  # fmt: skip


def _receive(hub: HubSettings, repo: str, name: str, pointer: Path, url: str, etag: str, size: int) -> None:
    """Receives the blob that huggingface_hub will look for, or the file itself where there are no links. url: the hub's
    and not that of the storage behind it. The signature of a storage URL is valid for an hour, and a large file may
    break off later. The redirection drops the token."""
    blob = _folder(hub, repo) / "blobs" / etag
    if blob.exists():
        return
    part = blob.with_name(f"{etag}.part")
    lock = hub.cache / ".locks" / _folder(hub, repo).name / f"{etag}.lock"
    blob.parent.mkdir(parents=True, exist_ok=True)
    lock.parent.mkdir(parents=True, exist_ok=True)
    place = blob if are_symlinks_supported(_folder(hub, repo)) else pointer
    place.parent.mkdir(parents=True, exist_ok=True)
    headers = build_hf_headers(token=hub.token or False, library_name="duo")
    headers["accept-encoding"] = "identity"  # a range of compressed data could not be resumed
    what = f"{name} of {repo}"
    with WeakFileLock(lock):
        if place.exists():
            return
        is_resumed = part.exists()
        receive(part, url, size, headers, name, what)
        if is_resumed and _is_damaged(part, etag):  # a power failure may have left holes
            hub.note(f"what was kept of an earlier download of {name} is damaged; it is downloaded again")
            part.unlink()
            receive(part, url, size, headers, name, what)
            if _is_damaged(part, etag):
                part.unlink()
                raise damaged(what)
        os.replace(part, place)
        with suppress(OSError):
            place.chmod(0o644)


def _is_damaged(part: Path, etag: str) -> bool:
    """Whether the ETag is a SHA-256, and not that of the file."""
    return re.fullmatch("[0-9a-f]{64}", etag) is not None and sha256_of(part) != etag


def sha256_of(path: Path) -> str:
    """Raises OSError."""
    with path.open("rb") as f:
        return sha_fileobj(f).hex()


def damaged(what: str) -> PeerLostError:
    """The exception for a file that is not the announced one."""
    return PeerLostError(f"{what} arrived damaged (its SHA-256 is not the one that was announced); try again")


def receive(part: Path, url: str, size: int | None, headers: dict[str, str], name: str, what: str) -> None:
    """Adds to the file `part` what it does not have yet. size: in bytes; None: unknown, so it begins anew. name: for
    the progress bar; what: for an error. Raises FAILURES, and PeerLostError: the server sent another number of
    bytes."""
    had = part.stat().st_size if part.exists() else 0
    if size is None or had > size:
        part.unlink(missing_ok=True)
        had = 0
    with part.open("ab") as f:
        try:
            http_get(url, f, resume_size=had, headers=headers, expected_size=size, displayed_filename=name)
        except OSError as e:
            # http_get raises a bare OSError without a number only where the size is wrong.
            if type(e) is not OSError or e.errno is not None or f.tell() == size:
                raise
            f.truncate(0)  # it cannot be resumed
            announced = "the bytes" if size is None else f"the {size} bytes"
            raise PeerLostError(f"{what} did not have {announced} that the server announced; try again") from None
