"""Asynchronous speculative decoding for llama.cpp models: draft and target run at the same time."""

import sys
from importlib import import_module
from pathlib import Path

from duo._libs import load_libraries

# The program says everything in one sentence, and ends on Ctrl-C without one.
_program = Path(*sys.argv[:1]).stem == "duo" or sys.orig_argv[1:3] == ["-m", "duo"]

try:
    load_libraries()  # before anything that needs duo._core
    if _program:
        import_module("click.shell_completion")  # what the program needs next
    from duo.api.engine import Duo, Stream
    from duo.api.shortcuts import generate, stream
    from duo.errors import DuoError
    from duo.text.result import Chunk, Result
except (ImportError, KeyboardInterrupt) as e:
    if not _program:
        raise
    # An extension module whose loading is interrupted makes an ImportError of it.
    interrupted = isinstance(e, KeyboardInterrupt) or isinstance(e.__cause__ or e.__context__, KeyboardInterrupt)
    raise SystemExit(130 if interrupted else f"duo: {e}") from None

__version__ = "0.1.0"
__all__ = ["Chunk", "Duo", "DuoError", "Result", "Stream", "__version__", "generate", "stream"]
