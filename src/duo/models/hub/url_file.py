"""Files that a URL names, in duo's cache: the hub's is for repositories alone. They are downloaded again if their ETag
changes."""

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
from duo.models.hub.download import MOST_BY_HTTP, TIMEOUT_S, damaged, receive, sha256_of
from duo.models.hub.failures import FAILURES, NO_NETWORK, hub_error
from duo.models.hub.listing import is_safe, n_parts_of
from duo.models.hub.repository import Hub, HubModel, parse
from duo.models.hub.settings import PUBLIC
from duo.support.cache_folder import cache_folder
from duo.support.wording import gigabytes, one_line, quoted

FOLDER = "urls"  # in duo's cache
N_NAME_MOST = 120  # bytes; file systems take 255
MAGIC = b"GGUF"
NO_HEAD = (403, 405, 501)  # of servers that answer GET alone; a signature may be for that
_OF_HUB = re.compile(r"/([^/]+/[^/]+)/(?:resolve|blob)/main/(.+)")


class Answer(NamedTuple):
    """What a server says of a file."""

    etag: str  # empty: it does not say
    size: int | None  # bytes
    sha256: str = ""  # hexadecimal; empty: it does not say


def model_at(hub: Hub, url: str) -> HubModel | None:
    """The file of a repository that a URL of the hub names; None: it is another URL. Raises BadValueError: it is
    none."""
    _parts(url)
    base = next((x for x in (hub.endpoint, PUBLIC, "https://hf.co") if _is_below(x, url)), None)
    path = "" if base is None else urlsplit(url).path.removeprefix(urlsplit(base).path)
    match = _OF_HUB.fullmatch(path)
    return None if match is None else parse(match[1], unquote(match[2]))


def fetch_url(hub: Hub, url: str) -> Path:
    """The GGUF file at the URL, downloaded if the cache does not have it, or has another one than the server. As in
    llama.cpp (common/download.cpp), but that two files of the same name are kept apart, and only the hub gets the
    token.

    Raises BadValueError (no URL, or no GGUF file), and what Hub.fetch raises.
    """
    of_hub = model_at(hub, url)
    if of_hub is not None:
        return hub.fetch(of_hub)
    path = _place(url)
    if (n_parts := n_parts_of(path.name)) > 1:
        raise BadValueError(
            f"{_shown(url)} is one of {n_parts} parts of a model, and a URL brings one file; download all parts into "
            "one folder, and give the first one's path"
        )
    if hub.offline:
        if os.path.isfile(path):
            return path
        raise UnknownModelError(
            f"the cache ({path.parents[1]}) has no {_shown(url)}; leave out --offline once to download it"
        )
    try:
        answer = _ask(hub, url)
    except DuoError:
        if not os.path.isfile(path):
            raise
        hub.note(f"{_shown(url)} cannot be asked for; {path.name} is taken from the cache")
        return path
    if not is_current(path, answer):
        try:
            bring(url, answer, path, _headers(hub, url), _shown(url), "give the address of the file itself")
        except FAILURES as e:
            raise failure_at(e, hub, url) from None
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


def _is_below(base: str, url: str) -> bool:
    return url.startswith(f"{base}/")


def _gets_token(hub: Hub, url: str) -> bool:
    """The hub alone: its token may be no business of the public one."""
    return _is_below(hub.endpoint, url)


def _shown(url: str) -> str:
    """Without what may be secret: a password, or a signature."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _place(url: str) -> Path:
    name = unquote(urlsplit(url).path.rpartition("/")[2])
    stem, dot, ending = name.rpartition(".")
    if dot and len(ending) < 10:
        most = N_NAME_MOST - len(f".{ending}".encode())
        name = f"{stem.encode()[:most].decode(errors='ignore')}.{ending}"
    else:
        name = name.encode()[:N_NAME_MOST].decode(errors="ignore")
    if not is_safe(name) or "/" in name:
        name = "file.gguf"
    return cache_folder() / FOLDER / hashlib.sha256(url.partition("#")[0].encode()).hexdigest()[:24] / name


def _etag_file(path: Path) -> Path:
    return path.with_name(f"{path.name}.etag")


def is_current(path: Path, answer: Answer) -> bool:
    """Whether the path has what the server has."""
    if not os.path.isfile(path):  # False, too, where it may not be looked at
        return False
    try:
        return not answer.etag or _etag_file(path).read_text("utf-8") == answer.etag
    except (OSError, ValueError):  # it is damaged
        return False


def _headers(hub: Hub, url: str) -> dict[str, str]:
    token = hub.token if _gets_token(hub, url) else None
    return {**build_hf_headers(token=token or False, library_name="duo"), "accept-encoding": "identity"}


def _ask(hub: Hub, url: str) -> Answer:
    """Raises DuoError."""
    try:
        try:
            headers = _answered(hub, url, "HEAD")
        except HfHubHTTPError as e:
            if e.response.status_code not in NO_HEAD:
                raise
            headers = _answered(hub, url, "GET", Range="bytes=0-0")
    except httpx2.InvalidURL:
        raise BadValueError(f"{quoted(url, 100)} is no web address; check it") from None
    except FAILURES as e:
        raise failure_at(e, hub, url) from None
    # Some servers do not know it before the file is asked for, and say 0.
    size = headers.get("Content-Range", "").rpartition("/")[2] or headers.get("Content-Length", "")
    return Answer(headers.get("ETag", ""), (int(size) or None) if size.isascii() and size.isdigit() else None)


def _answered(hub: Hub, url: str, method: str, **more: str) -> httpx2.Headers:
    """The headers of the answer, whose body is not read. Raises FAILURES."""
    asked = {**_headers(hub, url), **more}
    with get_session().stream(method, url, headers=asked, timeout=TIMEOUT_S) as response:
        hf_raise_for_status(response)
        return response.headers


def bring(url: str, answer: Answer, path: Path, headers: dict[str, str], what: str, advice: str) -> None:
    """Downloads the GGUF file to the path, and notes its ETag beside it. what: for errors; advice: if it is no GGUF
    file. Raises FAILURES and DuoError."""
    etag = hashlib.sha256(answer.etag.encode()).hexdigest()[:24]
    part, lock = path.with_name(f"{etag}.part"), path.parent.with_name(f"{path.parent.name}.lock")
    path.parent.mkdir(parents=True, exist_ok=True)
    with WeakFileLock(lock):
        if is_current(path, answer):  # another process had the lock before
            return
        if not answer.etag:  # the beginning may be of another file
            part.unlink(missing_ok=True)
        for old in path.parent.glob("*.part"):
            if old not in (part, path):  # of a file that the server no longer has
                old.unlink()
        _check_size(answer, part, path)
        receive(part, url, answer.size, headers, path.name, what)
        if answer.sha256 and sha256_of(part) != answer.sha256:
            part.unlink()
            raise damaged(what)
        with part.open("rb") as f:
            is_gguf = f.read(len(MAGIC)) == MAGIC
        if not is_gguf:
            part.unlink()
            raise BadValueError(f"{what} is no GGUF file (a page about it?); {advice}")
        os.replace(part, path)
        _etag_file(path).write_text(answer.etag, "utf-8")


def _check_size(answer: Answer, part: Path, path: Path) -> None:
    if answer.size is None:
        return
    if answer.size > MOST_BY_HTTP:
        raise DoesNotFitError(
            f"{path.name} has {gigabytes(answer.size)}, and duo downloads at most {gigabytes(MOST_BY_HTTP)} from a "
            "URL; download it yourself and give the file"
        )
    needed = answer.size - (part.stat().st_size if part.exists() else 0)
    free = shutil.disk_usage(path.parent).free
    if needed > free:
        raise DoesNotFitError(
            f"{path.name} needs {gigabytes(needed)} more on the disk of {path.parents[1]}, and {gigabytes(free)} are "
            "free; free some space, or set XDG_CACHE_HOME to a folder on a larger disk"
        )


def failure_at(e: Exception, hub: Hub, url: str, what: str = "") -> DuoError:
    """What FAILURES mean to the user. what: is at the URL; empty: the user gave the URL."""
    shown, server = what or _shown(url), urlsplit(_shown(url)).netloc
    if isinstance(e, HfHubHTTPError):
        code = e.response.status_code
        if code in (401, 403):
            if not _gets_token(hub, url):
                how = "download it yourself"
            elif hub.token is None:
                how = "set HF_TOKEN to a token that may read it"
            else:
                how = "check the token (HF_TOKEN or --hf-token)"
            return AccessDeniedError(f"access to {shown} is denied ({code}); {how}")
        if code in (404, 410):
            return UnknownModelError(f"{shown} does not exist ({code}); check the URL")
        if code == 429:
            return BusyError(f"{server} accepts no more requests for now (429); try again later")
        return PeerLostError(f"{shown} cannot be downloaded (status {code}); try again later")
    if isinstance(e, NO_NETWORK):
        return PeerLostError(
            f"{server} cannot be reached ({one_line(e)}); what has arrived is kept, so start again "
            "when the network is back"
        )
    return hub_error(e, shown, hub, cache_folder() / FOLDER)
