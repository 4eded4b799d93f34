"""Other ways than paths to say which models a `Duo` loads."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from typing import Any

from typing_extensions import Self, Unpack

from duo.errors import DuoError
from duo.options.llama_cpp import LoadOptions
from duo.options.signature import keywords


class Loading(ABC):
    """What `Duo` inherits: it is called with the two paths that were found."""

    @abstractmethod
    def __init__(self, *paths: str | os.PathLike[str] | None, **options: Any) -> None: ...

    @classmethod
    @keywords(LoadOptions)
    def from_pretrained(
        cls,
        repo_id: str,
        filename: str | None = None,
        draft_repo_id: str | None = None,
        draft_filename: str | None = None,
        *,
        cache_dir: str | os.PathLike[str] | None = None,
        token: str | None = None,
        offline: bool | None = None,
        **options: Unpack[LoadOptions],
    ) -> Self:
        """`Duo` with models from the Hugging Face Hub: "user/repo" or "user/repo:quant".

        filename: a file of the repository, or a pattern with * that one fits; without it llama.cpp's choice (Q4_K_M,
        else Q8_0, else any). token: default HF_TOKEN. cache_dir: default the hub's own. offline: what the cache has.
        Raises DuoError (unknown, gated, no network, no room on the disk, and as `Duo`).
        """
        from duo.models.hub.repository import from_hub

        if draft_filename is not None and draft_repo_id is None:
            raise DuoError("draft_filename is a file in a repository and none was given; give draft_repo_id too")
        paths = [
            None if repo is None else from_hub(repo, file, cache_dir=cache_dir, token=token, offline=offline)
            for repo, file in ((repo_id, filename), (draft_repo_id, draft_filename))
        ]
        return cls(*paths, **options)

    @classmethod
    @keywords(LoadOptions)
    def from_pair(cls, name: str, **options: Unpack[LoadOptions]) -> Self:
        """`Duo` with a pair by its name (see `duo pairs`), downloaded the first time. Raises as `from_pretrained`."""
        from duo.models.pairs import paths

        return cls(*paths(name), **options)
