"""`duo serve`: the HTTP server that programs for llama-server, OpenAI and Anthropic expect.

From the outside in: `lifecycle` (sockets, signals), `app` (routes), `respond` (one request), `response_stream` (its
texts). `request_options` and `chat_options` read what a request wants, and `formats` has the forms of answers. A
program with its own server mounts `create_app`.
"""

from typing import TYPE_CHECKING, Any

from duo.errors import MissingPackageError

if TYPE_CHECKING:
    from duo.server.app import create_app

__all__ = ["create_app"]


def need_server(what: str) -> None:
    """Call before importing anything else from this package. Raises MissingPackageError: the extra is not installed."""
    try:
        import fastapi  # noqa: F401
        import prometheus_client  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as e:
        raise MissingPackageError(f"{what} needs {e.name}; install it with: pip install 'duo-llama[server]'") from None


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Imports FastAPI when it is needed."""
        if name != "create_app":
            raise AttributeError(f"module 'duo.server' has no attribute {name!r}")
        need_server("create_app")
        from duo.server.app import create_app

        return create_app
