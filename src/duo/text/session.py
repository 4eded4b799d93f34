"""The engine of a loaded pair, its locks, and whose turn it is to write."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from duo import _core
from duo.errors import DuoError
from duo.text.result import Timings
from duo.text.trace_file import TraceFile


class Running(Protocol):
    """A text that is being written."""

    def abort(self) -> None: ...


class Network(Protocol):
    """What keeps a session in touch with a model on another machine."""

    @property
    def figures_of_text(self) -> dict[str, Any]: ...

    def begin_text(self) -> None: ...

    def take_warning(self) -> str: ...


class Session:
    """One text at a time: calls from several threads queue up. Every method may be called from any thread."""

    def __init__(
        self,
        engine: _core.Engine,
        *,
        network: Network | None = None,
        trace: TraceFile | None = None,
        always: bool = False,
    ) -> None:
        """always: speculate whether it pays or not (tests)."""
        self.network, self.always = network, always
        self.timings: Timings = {}  # of the last text
        # The engine is used by one thread at a time. Reentrant: the garbage collector may close a stream at any point.
        self.lock = threading.RLock()
        self._engine: _core.Engine | None = engine
        self._trace = trace
        self._turn = threading.Lock()  # held while a text is generated
        # Thread (and asyncio task) that pulls the text: neither can wait for itself.
        self._owner: tuple[int, object] | None = None
        self._current: weakref.ref[Running] | None = None  # the text that runs, or the last one
        self._closing = False

    # ---- models

    @property
    def engine(self) -> _core.Engine:
        """Raises DuoError: the session is closed."""
        if self._engine is None:
            raise DuoError("this Duo is closed; make a new one")
        return self._engine

    @property
    def closed(self) -> bool:
        """It is closed, or is about to be."""
        return self._closing or self._engine is None

    @property
    def local_model(self) -> _core.Model:
        """The model whose vocabulary texts are read and written with: the target, or the draft if that is elsewhere."""
        model = self.engine.target or self.engine.draft
        assert model is not None
        return model

    @property
    def has_draft(self) -> bool:
        return self.engine.draft is not None or self.network is not None

    # ---- turns

    @property
    def owner(self) -> tuple[int, object] | None:
        """Thread, and asyncio task or None, that pulls the text which runs; None: none does."""
        return self._owner

    def wait_for_turn(self) -> None:
        """Raises DuoError: this thread has the turn already."""
        if self._owner is not None and self._owner[0] == threading.get_ident():
            raise DuoError("this thread has another stream open; finish or close it before starting the next")
        self._turn.acquire()

    def take_turn(self) -> bool:
        """False: a text runs."""
        return self._turn.acquire(blocking=False)

    def hand_over(self, stream: Running, task: object) -> None:
        """This thread, or an asyncio task, pulls the text from now on."""
        self._owner = (threading.get_ident(), task)
        self._current = weakref.ref(stream)

    def abandon(self) -> None:
        """Nobody pulls the text any more: the next one waits for its turn."""
        self._owner = None

    def end_turn(self) -> None:
        self._owner = None
        self._turn.release()

    @contextmanager
    def between_texts(self) -> Iterator[_core.Engine]:
        """The engine while no text runs. Raises DuoError: the session is closed."""
        with self._turn, self.lock:
            yield self.engine

    # ---- the text that runs

    def cancel(self) -> None:
        """Under the lock. Ends the text that runs, if one does."""
        if self._engine is not None:
            self._engine.cancel()

    def next_chunk(self, wait_us: int) -> _core.TextChunk | None:
        """Under the lock. None: none came in time, or the session is being closed."""
        return None if self._closing else self.engine.next(wait_us)

    def stats(self) -> dict[str, Any] | None:
        """Under the lock. Of the text that runs or ran last; None: the session is closed."""
        return None if self._engine is None else self._engine.stats()

    def write_trace(self) -> None:
        """Passes what the workers have recorded on to the trace file. Raises DuoError if it cannot be written."""
        if self._trace is not None and self._engine is not None:
            self._trace.add(self._engine, {} if self.network is None else self.network.figures_of_text)

    # ---- end

    def close(self, last: Callable[[_core.Engine], None]) -> None:
        """Ends what runs, then calls `last` with the engine, which that closes. Safe to call twice.

        Raises DuoError: the trace cannot be written.
        """
        self._closing = True  # a reader that pulls chunk after chunk would hardly let go of the lock
        with self.lock:
            if (engine := self._engine) is None:
                return
            engine.cancel()
            try:
                if self._current is not None and (stream := self._current()) is not None:
                    stream.abort()
                self.write_trace()
                if self._trace is not None:
                    self._trace.close()
            finally:
                self._trace = self._engine = None
                last(engine)
