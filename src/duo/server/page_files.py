"""The files of the server's page, and their types."""

from pathlib import Path

FOLDER = Path(__file__).parent / "ui"
KINDS = {
    "index.html": "text/html; charset=utf-8",
    "page.css": "text/css; charset=utf-8",
    "dom.js": "text/javascript; charset=utf-8",
    "pictures.js": "text/javascript; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
