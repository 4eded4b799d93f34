"""Ways other than paths to choose the models of a `Duo`."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from typing import Any

from typing_extensions import Self, Unpack

from duo.errors import BadValueError
from duo.options.llama_cpp import LoadOptions
from duo.options.signature import keywords
from duo.options.speculation import says_plain


class Loading(ABC):
    """A base of `Duo`, which it calls with the two paths that it has found."""

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

        filename: a file in the repository, or a pattern with * that matches one file. Without it the choice is
        llama.cpp's: Q4_K_M, otherwise Q8_0, otherwise any; for the draft first a draft head (with mtp-, dspark-,
        dflash- or eagle3- in its name), of the kind that spec_type names if it names one.
        token: by default HF_TOKEN. cache_dir: by default the hub's. offline: use the cache only.
        Raises UnknownModelError, PeerLostError (no network), AccessDeniedError, DoesNotFitError (disk), and what
        `Duo` raises.
        """
        from duo.models.hub.head_files import kinds_of
        from duo.models.hub.repository import from_hub

        wanted: dict[str, Any] = dict(options)
        for name in ("additional_files", "local_dir"):
            if wanted.pop(name, None):
                raise BadValueError(
                    f"llama_cpp's {name} is not supported by duo; files go to the hub's cache (cache_dir)"
                )
        wanted.pop("local_dir_use_symlinks", None)
        if draft_filename is not None and draft_repo_id is None:
            raise BadValueError("draft_filename was given without a repository; give draft_repo_id too")
        kinds = kinds_of(options.get("spec_type"))
        paths = [
            None if repo is None else from_hub(repo, file, heads, cache_dir=cache_dir, token=token, offline=offline)
            for repo, file, heads in ((repo_id, filename, ()), (draft_repo_id, draft_filename, kinds))
        ]
        return cls(*paths, **wanted)

    @classmethod
    @keywords(LoadOptions)
    def from_pair(cls, name: str, **options: Unpack[LoadOptions]) -> Self:
        """`Duo` with a named pair (see `duo pairs`), which is downloaded the first time.

        If it has no draft file, the target's MTP layers guess, or n-grams, unless the options say what does. Raises as
        from_pretrained.
        """
        from duo.models.pairs import find, paths

        kind = find(name).pair.spec_type
        if kind is not None and options.get("draft_host") is None and not says_plain(options):
            options.setdefault("spec_type", kind)  # type: ignore[typeddict-item]
        return cls(*paths(name), **options)
