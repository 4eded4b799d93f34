"""Ways other than paths to choose the models of a `Duo`: repositories of the hub, and pairs by name."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from duo.errors import BadValueError
from duo.options.speculation import says_plain


def hub_paths(
    target: tuple[str, str | None],
    draft: tuple[str | None, str | None],
    spec_type: Any,
    *,
    cache_dir: str | os.PathLike[str] | None,
    token: str | None,
    offline: bool | None,
) -> list[Path | None]:
    """target, draft: repositories and files. spec_type: as a `Duo` gets it. Raises as `Duo.from_pretrained`."""
    from duo.models.hub.head_files import kinds_of
    from duo.models.hub.repository import from_hub

    if draft[1] is not None and draft[0] is None:
        raise BadValueError("draft_filename was given without a repository; give draft_repo_id too")
    return [
        None if repo is None else from_hub(repo, file, heads, cache_dir=cache_dir, token=token, offline=offline)
        for (repo, file), heads in ((target, ()), (draft, kinds_of(spec_type)))
    ]


def pair_paths(name: str, options: Mapping[str, Any]) -> tuple[tuple[Path, Path | None], dict[str, Any]]:
    """The files of a pair that duo knows, and the options with what guesses for it. Raises as `Duo.from_pair`."""
    from duo.models.pairs import find, paths

    kind = find(name).pair.spec_type
    if kind is not None and options.get("draft_host") is None and not says_plain(options):
        options = {"spec_type": kind, **options}
    return paths(name), dict(options)
