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
        """Loads models from the Hugging Face Hub, which are downloaded the first time.

        Args:
            repo_id: The target's repository: `user/repo`, or `user/repo:quant`.
            filename: A file in it, or a pattern with `*` that matches one file. Default: llama.cpp's choice, which is
                Q4_K_M, otherwise Q8_0, otherwise any.
            draft_repo_id: The draft's repository.
            draft_filename: A file in it. Default: a draft head (with mtp-, dspark-, dflash- or eagle3- in its name) of
                the kind that `spec_type` names; otherwise as for the target.
            cache_dir: Folder for the files. Default: the hub's cache.
            token: Access token. Default: the environment's HF_TOKEN.
            offline: Use only files that are on the disk.
            **options: Keywords of `Duo`.

        Raises:
            UnknownModelError: There is no such repository or file.
            AccessDeniedError: The model is gated or private, or the token is wrong.
            PeerLostError: The hub cannot be reached.
            DoesNotFitError: The disk has no room for the files.
            DuoError: What `Duo` raises.
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
        """Loads a pair that duo knows, which is downloaded the first time. Errors are those of `from_pretrained`.

        If the pair has no draft file, the target's MTP layers or n-grams guess, unless the options say otherwise.

        Args:
            name: Its name, from `duo pairs`.
            **options: Keywords of `Duo`.
        """
        from duo.models.pairs import find, paths

        kind = find(name).pair.spec_type
        if kind is not None and options.get("draft_host") is None and not says_plain(options):
            options.setdefault("spec_type", kind)  # type: ignore[typeddict-item]
        return cls(*paths(name), **options)
