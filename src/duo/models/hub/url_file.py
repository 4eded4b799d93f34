"""Files that a URL names, in the hub's cache. They are downloaded again if their ETag changes."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from pathlib import Path
from typing import NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

import httpx2
from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.utils import (  # type: ignore[attr-defined]
    WeakFileLock,
    build_hf_headers,
    get_session,
    hf_raise_for_status,
)

from duo.errors import (
    AccessDeniedError,
    BadValueError,
    BusyError,
    DoesNotFitError,
    DuoError,
    PeerLostError,
    UnknownModelError,
)
from duo.models.hub.download import MOST_BY_HTTP, TIMEOUT_S, receive
from duo.models.hub.failures import FAILURES, NO_NETWORK, hub_error
from duo.models.hub.listing import is_safe
from duo.models.hub.repository import Hub, HubModel, parse
from duo.models.hub.settings import PUBLIC
from duo.support.wording import gigabytes, one_line, quoted

FOLDER = "urls"  # in the cache
MAGIC = b"GGUF"
_OF_HUB = re.compile(r"/([^/]+/[^/]+)/(?:resolve|blob)/main/(.+)")


class _Answer(NamedTuple):
    """What a server says of a file."""

    etag: str  # empty: it does not say
    size: int | None  # bytes


def model_at(hub: Hub, url: str) -> HubModel | None:
    """The file of a repository that a URL of the hub names; None: it is another URL. Raises BadValueError: it is
    none."""
    parts = _parts(url)
    found = _OF_HUB.fullmatch(parts.path) if _is_hubs(hub, parts) else None
    return None if found is None else parse(found[1], unquote(found[2]))


def fetch_url(hub: Hub, url: str) -> Path:
    """The GGUF file at the URL, downloaded if the cache does not have it, or has another one than the server. As in
    llama.cpp (common/download.cpp), but that two files of the same name are kept apart, and only the hub gets the
    token.

    Raises BadValueError (no URL, or no GGUF file), and what Hub.fetch raises.
    """
    of_hub = model_at(hub, url)
    if of_hub is not None:
        return hub.fetch(of_hub)
    path = _place(hub, url)
    if hub.offline:
        if path.is_file():
            return path
        raise UnknownModelError(
            f"the cache ({hub.cache}) has no {_shown(url)}; leave out --offline once to download it"
        )
    try:
        answer = _ask(hub, url)
    except DuoError:
        if not path.is_file():
            raise
        hub.note(f"{_shown(url)} cannot be asked for; {path.name} is taken from the cache")
        return path
    if not _is_current(path, answer):
        _download(hub, url, answer, path)
    return path


def _parts(url: str) -> SplitResult:
    """Raises BadValueError."""
    try:
        parts = urlsplit(url)
        (parts.hostname or "").encode("idna")
        is_web = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_web = False
    if not is_web or not re.fullmatch(r"[!-~]+", url):
        raise BadValueError(f"{quoted(url, 100)} is no web address; write it as https://HOST/FILE.gguf")
    return parts


def _is_hubs(hub: Hub, parts: SplitResult) -> bool:
    return f"{parts.scheme}://{parts.netloc}" in (hub.endpoint, PUBLIC, "https://hf.co")


def _gets_token(hub: Hub, url: str) -> bool:
    """The hub alone: its token may be no business of the public one."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}" == hub.endpoint


def _shown(url: str) -> str:
    """Without what may be secret: a password, or a signature."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _place(hub: Hub, url: str) -> Path:
    name = unquote(urlsplit(url).path.rpartition("/")[2])[-120:]
    name = name if is_safe(name) else "file.gguf"
    return hub.cache / FOLDER / hashlib.sha256(url.partition("#")[0].encode()).hexdigest()[:24] / name


def _etag_file(path: Path) -> Path:
    return path.with_name(f"{path.name}.etag")


def _is_current(path: Path, answer: _Answer) -> bool:
    if not path.is_file():
        return False
    try:
        return not answer.etag or _etag_file(path).read_text("utf-8") == answer.etag
    except OSError:
        return False


def _headers(hub: Hub, url: str) -> dict[str, str]:
    token = hub.token if _gets_token(hub, url) else None
    return {**build_hf_headers(token=token or False, library_name="duo"), "accept-encoding": "identity"}


def _ask(hub: Hub, url: str) -> _Answer:
    """Raises DuoError."""
    try:
        response = get_session().request("HEAD", url, headers=_headers(hub, url), timeout=TIMEOUT_S)
        hf_raise_for_status(response)
    except httpx2.InvalidURL:
        raise BadValueError(f"{quoted(url, 100)} is no web address; check it") from None
    except FAILURES as e:
        raise _error(e, hub, url) from None
    size = response.headers.get("Content-Length", "")
    return _Answer(response.headers.get("ETag", ""), int(size) if size.isascii() and size.isdigit() else None)


def _download(hub: Hub, url: str, answer: _Answer, path: Path) -> None:
    """Raises DuoError."""
    etag = hashlib.sha256(answer.etag.encode()).hexdigest()[:24]
    part, lock = path.with_name(f"{etag}.part"), hub.cache / ".locks" / FOLDER / f"{path.parent.name}.lock"
    try:
        for folder in (path.parent, lock.parent):
            folder.mkdir(parents=True, exist_ok=True)
        with WeakFileLock(lock):
            if _is_current(path, answer):  # another process had the lock before
                return
            if not answer.etag:  # the beginning may be of another file
                part.unlink(missing_ok=True)
            _check_size(hub, answer, part, path)
            receive(part, url, answer.size, _headers(hub, url), path.name, _shown(url))
            with part.open("rb") as f:
                is_gguf = f.read(len(MAGIC)) == MAGIC
            if not is_gguf:
                part.unlink()
                raise BadValueError(
                    f"{_shown(url)} is no GGUF file (a page about it?); give the address of the file itself"
                )
            os.replace(part, path)
            _etag_file(path).write_text(answer.etag, "utf-8")
    except FAILURES as e:
        raise _error(e, hub, url) from None


def _check_size(hub: Hub, answer: _Answer, part: Path, path: Path) -> None:
    if answer.size is None:
        return
    needed = answer.size - (part.stat().st_size if part.exists() else 0)
    free = shutil.disk_usage(path.parent).free
    if answer.size > MOST_BY_HTTP or needed > free:
        raise DoesNotFitError(
            f"{path.name} needs {gigabytes(needed)} more on the disk of {hub.cache}, and {gigabytes(free)} are free; "
            "free some space, or set LLAMA_CACHE to a folder on a larger disk"
        )


def _error(e: Exception, hub: Hub, url: str) -> DuoError:
    shown = _shown(url)
    if isinstance(e, HfHubHTTPError):
        code = e.response.status_code
        if code in (401, 403):
            how = "set HF_TOKEN to a token that may read it" if _gets_token(hub, url) else "download it yourself"
            return AccessDeniedError(f"access to {shown} is denied ({code}); {how}")
        if code in (404, 410):
            return UnknownModelError(f"{shown} does not exist ({code}); check the URL")
        if code == 429:
            return BusyError(f"{urlsplit(shown).netloc} accepts no more requests for now (429); try again later")
        return PeerLostError(f"{shown} cannot be downloaded (status {code}); try again later")
    if isinstance(e, NO_NETWORK):
        return PeerLostError(
            f"{urlsplit(shown).netloc} cannot be reached ({one_line(e)}); what has arrived is kept, so start again "
            "when the network is back"
        )
    return hub_error(e, shown, hub, hub.cache)
