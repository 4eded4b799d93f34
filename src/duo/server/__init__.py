"""`duo serve`: the HTTP server that programs for llama-server, OpenAI and Anthropic expect.

From the outside in: `lifecycle` (sockets, signals), `app` (routes), `respond` (one request), `response_stream` (its
texts). `request_options` and `chat_options` read what a request wants, and `formats` has the forms of answers. A
program with its own server mounts `create_app`.
"""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from duo.errors import MissingPackageError

if TYPE_CHECKING:
    from duo.server.app import create_app

__all__ = ["create_app"]
PACKAGES = ("fastapi", "prometheus_client", "starlette", "uvicorn")  # of the extra


def need_server(what: str) -> None:
    """Call before importing anything else from this package. Raises MissingPackageError: the extra is not installed."""
    for name in PACKAGES:  # looked for, not imported: some are needed later, or never
        if find_spec(name) is None:
            raise MissingPackageError(f"{what} needs {name}; install it with: pip install 'duo-llama[server]'")


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Imports Starlette when it is needed."""
        if name != "create_app":
            raise AttributeError(f"module 'duo.server' has no attribute {name!r}")
        need_server("create_app")
        from duo.server.app import create_app

        return create_app
