"""Asynchronous speculative decoding for llama.cpp models: draft and target run at the same time."""

import sys
from pathlib import Path

from duo._libs import load_libraries

try:
    load_libraries()  # before anything that needs duo._core
except ImportError as e:
    if Path(*sys.argv[:1]).stem == "duo":  # the program says it in one sentence, as it says everything
        raise SystemExit(f"duo: {e}") from None
    raise

from duo.engine import Duo, Stream
from duo.errors import DuoError
from duo.once import generate, stream
from duo.result import Chunk, Result

__version__ = "0.1.0"
__all__ = ["Chunk", "Duo", "DuoError", "Result", "Stream", "__version__", "generate", "stream"]
