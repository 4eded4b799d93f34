"""The files of the server's page, and their types."""

from pathlib import Path

FOLDER = Path(__file__).parent / "ui"
_JAVASCRIPT = (
    "answer", "conversation", "conversations", "dom", "figures", "lanes", "page", "pictures", "server", "settings",
    "words",
)  # fmt: skip
KINDS = {
    "index.html": "text/html; charset=utf-8",
    "page.css": "text/css; charset=utf-8",
    **{f"{name}.js": "text/javascript; charset=utf-8" for name in _JAVASCRIPT},
    "icon.svg": "image/svg+xml",
}
