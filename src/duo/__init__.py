"""Asynchronous speculative decoding for llama.cpp models: draft and target run at the same time.

`import duo` loads almost nothing and changes nothing. The first name that needs libllama loads it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from duo.errors import (
    AccessDeniedError,
    BadValue,
    BadValueError,
    Busy,
    BusyError,
    Cancelled,
    ContextFull,
    ContextFullError,
    DoesNotFit,
    DoesNotFitError,
    DuoError,
    MissingPackageError,
    PeerLost,
    PeerLostError,
    UnknownModel,
    UnknownModelError,
)
from duo.errors import CancelledError as CancelledError  # for type checkers, without __all__

if TYPE_CHECKING:
    from duo.generation.result import Chunk, FinishReason, Result, TokenLogprobs
    from duo.generation.state import State
    from duo.generation.timings import Timings
    from duo.model import Duo, Stream
    from duo.shortcuts import generate, stream

__version__ = "0.2.0"
# CancelledError is not here: `from duo import *` would hide asyncio's.
__all__ = [
    "AccessDeniedError",
    "BadValue",
    "BadValueError",
    "Busy",
    "BusyError",
    "Cancelled",
    "Chunk",
    "ContextFull",
    "ContextFullError",
    "DoesNotFit",
    "DoesNotFitError",
    "Duo",
    "DuoError",
    "FinishReason",
    "MissingPackageError",
    "PeerLost",
    "PeerLostError",
    "Result",
    "State",
    "Stream",
    "Timings",
    "TokenLogprobs",
    "UnknownModel",
    "UnknownModelError",
    "__version__",
    "generate",
    "stream",
]

_MODULES = {
    "Chunk": "duo.generation.result",
    "Duo": "duo.model",
    "FinishReason": "duo.generation.result",
    "Result": "duo.generation.result",
    "State": "duo.generation.state",
    "Stream": "duo.model",
    "Timings": "duo.generation.timings",
    "TokenLogprobs": "duo.generation.result",
    "generate": "duo.shortcuts",
    "stream": "duo.shortcuts",
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Imports a name when it is used (PEP 562). `from duo import _core` comes here too and loads libllama first."""
        if name == "_core":
            return import_module("duo._libs").load_core()
        if name not in _MODULES:
            raise AttributeError(f"module 'duo' has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_MODULES[name]), name)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *_MODULES})
