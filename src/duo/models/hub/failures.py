"""Failures between this machine and the hub, as one sentence each."""

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

from duo.errors import AccessDeniedError, BusyError, DoesNotFitError, DuoError, PeerLostError, UnknownModelError
from duo.models.hub.settings import HubSettings
from duo.support.wording import one_line

# Exceptions of a broken or missing network.
NO_NETWORK = (httpx2.TransportError,)
# Everything that huggingface_hub raises except for bugs. HfHubHTTPError and others are OSErrors.
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
    return f"{endpoint} cannot be reached ({one_line(e)})"


def no_listing(endpoint: str) -> str:
    """Half a sentence."""
    return f"{endpoint} did not answer with a list of files (a login page?)"


def hub_error(e: Exception, repo: str, hub: HubSettings, folder: Path) -> DuoError:
    """The DuoError for what huggingface_hub raises while it lists or downloads. folder: where the files should go."""
    if isinstance(e, HFValidationError):
        return UnknownModelError(f"{repo} is not the name of a repository; write it as user/repo")
    if isinstance(e, HfHubHTTPError):
        return _refusal(e, repo, hub)
    if isinstance(e, NO_NETWORK):
        return PeerLostError(
            f"{unreachable(e, hub.endpoint)}; what has arrived is kept, so start again when the network is back"
        )
    if isinstance(e, OSError) and e.errno == errno.ENOSPC:
        return DoesNotFitError(f"the disk is full; free some space and start the download of {repo} again")
    if isinstance(e, OSError) and e.strerror and e.filename is not None:
        why = e.strerror[0].lower() + e.strerror[1:]
        return DuoError(f"{repo} could not be written to {folder} ({why}); check that folder, or choose another")
    return DuoError(f"{repo} could not be downloaded ({one_line(e)}); try again")


def _refusal(e: HfHubHTTPError, repo: str, hub: HubSettings) -> DuoError:
    endpoint, has_token, code = hub.endpoint, hub.token is not None, e.response.status_code
    page = f"{endpoint}/{repo}"
    if isinstance(e, GatedRepoError):
        token = "with the account of your token" if has_token else "and set HF_TOKEN to a token of that account"
        return AccessDeniedError(f"{repo} is gated; ask for access at {page} {token}")
    if isinstance(e, RepositoryNotFoundError) and (code == 404 or not has_token):
        if has_token:
            return UnknownModelError(f"there is no repository {repo} at {endpoint} for this token; check the name")
        return UnknownModelError(
            f"there is no repository {repo} at {endpoint}; check the name, or set HF_TOKEN if it is private"
        )
    if code in (401, 403):
        why = "check the token (HF_TOKEN or --hf-token)" if has_token else "set HF_TOKEN to a token that may read it"
        return AccessDeniedError(f"access to {page} is denied ({code}); {why}")
    if code == 404:
        return UnknownModelError(
            f"{e.response.request.url} does not exist (404); check the names of the repository and the file"
        )
    if code == 429:
        return BusyError(f"{endpoint} accepts no more requests for now (429); try again {_wait(e)}, or set HF_TOKEN")
    return PeerLostError(f"{endpoint} answered {code} for {repo}; try again later")
