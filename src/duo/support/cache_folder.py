"""Where duo keeps files that can be made again."""

from __future__ import annotations

from pathlib import Path

from duo.support.home import below_home


def cache_folder() -> Path:
    """duo's own folder in the user's cache."""
    from platformdirs import user_cache_path

    return below_home(lambda: user_cache_path("duo"))
