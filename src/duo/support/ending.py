"""How a program ends that writes files."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def ended_as_by_ctrl_c() -> Iterator[None]:
    """A closed terminal and `kill` then leave no files. What is ignored (nohup) or handled stays so."""
    signals = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]  # Windows: no SIGHUP
    defaults = [s for s in signals if signal.getsignal(s) is signal.SIG_DFL]
    for s in defaults:
        signal.signal(s, signal.default_int_handler)
    try:
        yield
    finally:
        for s in defaults:
            signal.signal(s, signal.SIG_DFL)
