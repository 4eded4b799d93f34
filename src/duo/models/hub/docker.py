"""Models of Docker Hub, which docker model pull takes: the layer of an image that is a GGUF file. As in llama.cpp
(common/download.cpp), it comes from the registry itself, into duo's cache."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from huggingface_hub.errors import HfHubHTTPError
from huggingface_hub.utils import get_session, hf_raise_for_status  # type: ignore[attr-defined]

from duo.errors import AccessDeniedError, BadValueError, DuoError, PeerLostError, UnknownModelError
from duo.models.hub.download import TIMEOUT_S
from duo.models.hub.failures import FAILURES
from duo.models.hub.repository import Hub
from duo.models.hub.url_file import Answer, bring, failure_at, is_current
from duo.support.cache_folder import cache_folder
from duo.support.wording import quoted

FOLDER = "docker"  # in duo's cache
N_NAME_MOST = 240  # bytes of a name and a tag, which become a file's; file systems take 255
TOKENS, REGISTRY = "https://auth.docker.io", "https://registry-1.docker.io"
MANIFESTS = "application/vnd.docker.distribution.manifest.v2+json,application/vnd.oci.image.manifest.v1+json"
_PART = "[a-z0-9]+(?:[._-]+[a-z0-9]+)*"  # of a repository's name
_NAME = re.compile(rf"((?:{_PART}/)?{_PART})(?::([\w][\w.-]{{0,127}}))?", re.ASCII)
_DIGEST = re.compile("sha256:[a-fA-F0-9]{64}")


def fetch_image(hub: Hub, name: str) -> Path:
    """The model of [USER/]MODEL[:TAG], downloaded if the cache does not have it, or has another one than the registry.
    Raises BadValueError (no such name), and what Hub.fetch raises."""
    match = _NAME.fullmatch(name)
    if match is None:
        raise BadValueError(f"{quoted(name, 100)} (-dr) is not [USER/]MODEL[:TAG]; write it as ai/smollm2:135M-Q4_0")
    repo = match[1] if "/" in match[1] else f"ai/{match[1]}"
    tag = match[2] or "latest"
    image = f"{repo}:{tag}"
    if len(image) > N_NAME_MOST:
        raise BadValueError(f"{quoted(name, 100)} (-dr) has more than {N_NAME_MOST} characters; check the name")
    path = cache_folder() / FOLDER / f"{repo.replace('/', '_')}_{tag}" / f"{repo.rpartition('/')[2]}-{tag}.gguf"
    if hub.offline:
        if os.path.isfile(path):
            return path
        raise UnknownModelError(f"the cache has no {image}; leave out --offline once to download it")
    try:
        token = _token(hub, repo, image)
        digest, size = _layer(hub, repo, tag, token)
    except DuoError:
        if not os.path.isfile(path):
            raise
        hub.note(f"{image} cannot be asked for; {path.name} is taken from the cache")
        return path
    answer = Answer(digest, size, digest.removeprefix("sha256:"))
    if not is_current(path, answer):
        url = f"{REGISTRY}/v2/{repo}/blobs/{digest}"
        headers = {"authorization": f"Bearer {token}", "accept-encoding": "identity"}
        try:
            bring(url, answer, path, headers, f"{image} of Docker Hub", "give another one with -dr")
        except FAILURES as e:
            raise _failure(e, hub, url, image) from None
    return path


def _failure(e: Exception, hub: Hub, url: str, image: str) -> DuoError:
    """What FAILURES mean to the user, who knows the image, and no URL."""
    code = e.response.status_code if isinstance(e, HfHubHTTPError) else 0
    why = f"Docker Hub has no public model {image} ({code}); check the name (-dr)"
    if code in (401, 403):
        return AccessDeniedError(why)
    if code in (404, 410):
        return UnknownModelError(why)
    return failure_at(e, hub, url, f"{image} of Docker Hub")


def _json(hub: Hub, url: str, headers: dict[str, str], image: str) -> dict[str, Any]:
    """Raises DuoError."""
    try:
        response = get_session().request("GET", url, headers=headers, timeout=TIMEOUT_S)
        hf_raise_for_status(response)
        answer = response.json()
    except FAILURES as e:
        raise _failure(e, hub, url, image) from None
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise PeerLostError(f"Docker Hub answers with no JSON object when asked for {image}; try again later")
    return answer


def _token(hub: Hub, repo: str, image: str) -> str:
    """Everybody gets one for what is public. Raises DuoError."""
    url = f"{TOKENS}/token?service=registry.docker.io&scope=repository:{repo}:pull"
    token = _json(hub, url, {}, image).get("token")
    if not isinstance(token, str) or not re.fullmatch("[!-~]+", token):
        raise PeerLostError(f"Docker Hub gives no token for {image}; try again later")
    return token


def _layer(hub: Hub, repo: str, tag: str, token: str) -> tuple[str, int | None]:
    """The digest and the bytes of the GGUF file. Raises DuoError."""
    url = f"{REGISTRY}/v2/{repo}/manifests/{tag}"
    asked = {"authorization": f"Bearer {token}", "accept": MANIFESTS}
    layers = _json(hub, url, asked, f"{repo}:{tag}").get("layers")
    for layer in layers if isinstance(layers, list) else ():
        if isinstance(layer, dict) and "gguf" in str(layer.get("mediaType")):
            digest, size = str(layer.get("digest")), layer.get("size")
            if _DIGEST.fullmatch(digest):
                return digest.lower(), size if type(size) is int and size > 0 else None
    raise UnknownModelError(f"{repo}:{tag} of Docker Hub holds no GGUF file; give another one with -dr")
