"""Asynchronous speculative decoding for llama.cpp models: draft and target run at the same time.

`import duo` loads almost nothing. The first name that needs libllama loads it.
"""

import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from duo._openmp import set_wait_policy
from duo.errors import BadValue, Busy, Cancelled, ContextFull, DoesNotFit, DuoError, PeerLost, UnknownModel

if TYPE_CHECKING:
    from duo.api.engine import Duo, Stream
    from duo.api.shortcuts import generate, stream
    from duo.text.result import Chunk, Result

set_wait_policy()

if Path(*sys.argv[:1]).stem == "duo" or sys.orig_argv[1:3] == ["-m", "duo"]:
    try:
        import_module("click.shell_completion")  # what the program needs next, and most of the time until its main()
    except KeyboardInterrupt:
        raise SystemExit(130) from None

__version__ = "0.2.0"
__all__ = [
    "BadValue",
    "Busy",
    "Cancelled",
    "Chunk",
    "ContextFull",
    "DoesNotFit",
    "Duo",
    "DuoError",
    "PeerLost",
    "Result",
    "Stream",
    "UnknownModel",
    "__version__",
    "generate",
    "stream",
]

_MODULES = {
    "Chunk": "duo.text.result",
    "Duo": "duo.api.engine",
    "Result": "duo.text.result",
    "Stream": "duo.api.engine",
    "generate": "duo.api.shortcuts",
    "stream": "duo.api.shortcuts",
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Imports a name when it is used (PEP 562). `from duo import _core` comes here too and loads libllama first."""
        if name == "_core":
            return import_module("duo._libs").load_core()
        if name not in _MODULES:
            raise AttributeError(f"module 'duo' has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(_MODULES[name]), name)
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *_MODULES})
