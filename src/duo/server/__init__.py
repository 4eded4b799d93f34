"""`duo serve`: the HTTP server that programs for llama-server, OpenAI and Anthropic expect.

From the outside in: `lifecycle` (sockets, signals), `app` (routes), `respond` (one request), `response_stream` (its
texts). `request_options` and `chat_options` read what a request wants, and `formats` has the forms of answers. A
program with its own server mounts `create_app`.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from duo.errors import MissingPackageError
from duo.support.wording import one_line

if TYPE_CHECKING:
    from duo.server.app import create_app

__all__ = ["create_app"]
PACKAGES = ("fastapi", "prometheus_client", "starlette", "uvicorn")  # of the extra


def need_server(what: str, *at_once: str) -> None:
    """Call before importing anything else from this package. at_once: modules of others that it imports then. Raises
    MissingPackageError: the extra, or what it needs itself, is not installed."""
    for name in PACKAGES:  # looked for, not imported: some are needed later, or never
        if find_spec(name) is None:
            raise MissingPackageError(f"{what} needs {name}; install it with: pip install 'duo-llama[server]'")
    for name in at_once:
        try:
            import_module(name)
        except ImportError as e:
            raise MissingPackageError(
                f"{what} needs {name}, which cannot be loaded ({one_line(e)}); install what it needs with: "
                "pip install 'duo-llama[server]'"
            ) from None


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Imports Starlette when it is needed."""
        if name != "create_app":
            raise AttributeError(f"module 'duo.server' has no attribute {name!r}")
        need_server("create_app", "starlette.applications")
        from duo.server.app import create_app

        return create_app
