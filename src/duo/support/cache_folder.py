"""Where duo keeps files that can be made again."""

from __future__ import annotations

from pathlib import Path


def cache_folder() -> Path:
    """duo's own folder in the user's cache."""
    from platformdirs import user_cache_path

    return user_cache_path("duo")
