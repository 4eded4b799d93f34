"""Files of a folder of the user's, in place of the page (--path)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from duo.server.settings import ServerSettings


def add(app: Starlette, settings: ServerSettings) -> None:
    """Below all routes, which therefore come first."""
    if settings.files is not None:
        from starlette.staticfiles import StaticFiles

        app.mount(settings.api_prefix or "/", StaticFiles(directory=settings.files, html=True))
