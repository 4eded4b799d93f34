"""What can go wrong between here and the hub, as one sentence each."""

from __future__ import annotations

import errno
from pathlib import Path

import httpx2
from huggingface_hub.errors import (
    EntryNotFoundError,
    FileMetadataError,
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    RepositoryNotFoundError,
    XetDownloadError,
)

from duo.errors import DuoError
from duo.models.hub.settings import HubSettings

# What a broken or missing network looks like.
NO_NETWORK = (httpx2.TransportError,)
# All that huggingface_hub may raise for what is no mistake of ours. HfHubHTTPError and others are OSErrors.
FAILURES = (
    *NO_NETWORK,
    OSError,
    EntryNotFoundError,
    FileMetadataError,
    HFValidationError,
    XetDownloadError,
    httpx2.HTTPError,
)


def _wait(e: HfHubHTTPError) -> str:
    after = e.response.headers.get("Retry-After", "")
    return f"in {after} seconds" if after.isdigit() else "later"


def unreachable(e: Exception, endpoint: str) -> str:
    """Half a sentence."""
    return f"{endpoint} cannot be reached ({str(e) or type(e).__name__})"


def no_listing(endpoint: str) -> str:
    """Half a sentence."""
    return f"{endpoint} answered what is no list of files (a login page?)"


def _sentence(e: Exception, repo: str, hub: HubSettings, folder: Path) -> str:
    endpoint, has_token = hub.endpoint, hub.token is not None
    page = f"{endpoint}/{repo}"
    if isinstance(e, HFValidationError):
        return f"{repo} is no repository's name; write it as user/repo"
    if isinstance(e, GatedRepoError):
        token = "with the account of your token" if has_token else "and set HF_TOKEN to a token of that account"
        return f"{repo} is gated; ask for access at {page} {token}"
    if isinstance(e, RepositoryNotFoundError) and (e.response.status_code == 404 or not has_token):
        if has_token:
            return f"there is no repository {repo} at {endpoint} with this token; check the name"
        return f"there is no repository {repo} at {endpoint}; check the name, or set HF_TOKEN if it is private"
    if isinstance(e, HfHubHTTPError):
        code = e.response.status_code
        if code in (401, 403):
            why = (
                "check the token (HF_TOKEN or --hf-token)" if has_token else "set HF_TOKEN to a token that may read it"
            )
            return f"{page} may not be read ({code}); {why}"
        if code == 404:
            return f"{e.response.request.url} does not exist (404); check the names of repository and file"
        if code == 429:
            return f"{endpoint} takes no more requests for now (429); try again {_wait(e)}, or set HF_TOKEN"
        return f"{endpoint} answered {code} for {repo}; try again later"
    if isinstance(e, NO_NETWORK):
        return f"{unreachable(e, endpoint)}; what has come is kept, so start again when the network is back"
    if isinstance(e, OSError) and e.errno == errno.ENOSPC:
        return f"the disk is full; free some space and start the download of {repo} again"
    if isinstance(e, OSError) and e.strerror and e.filename is not None:
        why = e.strerror[0].lower() + e.strerror[1:]
        return f"{repo} could not be written into {folder} ({why}); see to that folder, or choose another"
    return f"{repo} could not be downloaded ({' '.join(str(e).split()) or type(e).__name__}); try again"


def hub_error(e: Exception, repo: str, hub: HubSettings, folder: Path) -> DuoError:
    """For everything that huggingface_hub raises while it lists or downloads. folder: where the files should go."""
    return DuoError(_sentence(e, repo, hub, folder))
