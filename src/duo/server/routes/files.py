"""Files of a folder of the user's, in place of the page (--path)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException

if TYPE_CHECKING:
    from pathlib import Path

    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.staticfiles import StaticFiles

    from duo.server.settings import ServerSettings

OWN_PAGE = ("/", "/index.html")  # for everybody, as in llama-server


def add(app: Starlette, settings: ServerSettings) -> None:
    """Below all routes, which therefore come first."""
    if settings.files is not None:
        app.mount(settings.api_prefix or "/", _files(settings.files))


class FolderFiles:
    """For a server whose last route takes all paths. folder: None: there is none."""

    def __init__(self, folder: Path | None) -> None:
        self._files = None if folder is None else _files(folder)

    async def find(self, request: Request, path: str) -> Response | None:
        """The file at this path, without its first slash. None: it is for others. Raises HTTPException 404: there is no
        page of the user's. Everybody may ask for that, so nobody else shall get such a request."""
        if self._files is None or request.method not in ("GET", "HEAD"):
            return None
        try:
            answer = await self._files.get_response(os.path.normpath(path.lstrip("/")), request.scope)
        except (HTTPException, OSError):
            answer = None
        if answer is not None and answer.status_code < 400:
            return answer
        if f"/{path}" in OWN_PAGE:
            raise HTTPException(404)
        return None


def _files(folder: Path) -> StaticFiles:
    from starlette.staticfiles import StaticFiles

    return StaticFiles(directory=folder, html=True)
