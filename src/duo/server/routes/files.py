"""Files of a folder of the user's, in place of the page (--path)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.staticfiles import StaticFiles

if TYPE_CHECKING:
    from fastapi import FastAPI

    from duo.server.settings import ServerSettings


def add(app: FastAPI, settings: ServerSettings) -> None:
    """Below all routes, which therefore come first."""
    if settings.files is not None:
        app.mount(settings.api_prefix or "/", StaticFiles(directory=settings.files, html=True))
