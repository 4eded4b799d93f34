"""The pages for a browser: files of the package, at / and below /ui/."""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter, FastAPI
from starlette.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles

PAGES = Path(__file__).parent / "ui"  # index.html and what it needs


def add_pages(app: FastAPI, router: APIRouter, prefix: str, folder: Path) -> None:
    """Nothing is added if there is no page."""
    start = folder / "index.html"
    if not start.is_file():
        return

    @router.get("/", include_in_schema=False)
    async def page() -> Response:
        return FileResponse(start)

    app.mount(f"{prefix}/ui", StaticFiles(directory=folder), name="ui")
