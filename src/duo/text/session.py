"""The engine of a loaded pair, its locks, and the turns of the texts."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from duo import _core
from duo.errors import BadValue, Busy, Cancelled
from duo.placement.belongings import Belongings
from duo.text.result import Timings
from duo.text.trace_file import TraceFile

# Longest wait for a chunk, so that Ctrl-C and close() from another thread take effect.
SLICE_US = 50_000


class Running(Protocol):
    """A text that is being generated."""

    def abort(self) -> None: ...


class Inside(Protocol):
    """A program's own function, which the target's thread may be in."""

    @property
    def is_here(self) -> bool: ...


class Network(Protocol):
    """A session's connection to a model on another machine."""

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
        placed: _core.EngineOptions | None = None,
    ) -> None:
        """always: speculate even if it does not pay off (for tests)."""
        self.network, self.always = network, always
        self.timings: Timings = {}  # of the last text
        # One thread at a time uses the engine. Reentrant: the garbage collector may close a stream at any point.
        self.lock = threading.RLock()
        self._engine: _core.Engine | None = engine
        self._trace = trace
        self._belongings = None if placed is None else Belongings(placed)
        self._turn = threading.Lock()  # held while a text is generated
        # Thread (and asyncio task) that reads the text. Neither can wait for itself.
        self._owner: tuple[int, object] | None = None
        self._current: weakref.ref[Running] | None = None  # the running text, or the last one
        self._closing = False
        self._hook: Inside | None = None  # of the running text

    # ---- models

    @property
    def engine(self) -> _core.Engine:
        """Raises Cancelled if the session is closed."""
        if self._engine is None:
            raise Cancelled("this Duo is closed; make a new one")
        return self._engine

    @property
    def closed(self) -> bool:
        """Whether it is closed, or is being closed."""
        return self._closing or self._engine is None

    @property
    def local_model(self) -> _core.Model:
        """The model whose vocabulary is used: the target, or the draft if the target is on another machine."""
        model = self.engine.target or self.engine.draft
        assert model is not None
        return model

    @property
    def has_draft(self) -> bool:
        return self.engine.draft is not None or self.network is not None

    @property
    def belongings(self) -> dict[str, dict[str, str]]:
        """What a saved cache belongs to, by the role of the model. Raises BadValue: the target is elsewhere."""
        if self._belongings is None:
            raise BadValue("this session's models have no files; their caches cannot be saved")
        return self._belongings.of(self.engine)

    # ---- turns

    @property
    def in_hook(self) -> bool:
        """Whether this is the target's thread, in a function of the program's own: it cannot wait for the text."""
        return self._hook is not None and self._hook.is_here

    def check_outside(self) -> None:
        """Raises Busy if the caller is a logits_processor or stopping_criteria of the running text."""
        if self.in_hook:
            raise Busy("a logits_processor or stopping_criteria runs inside a text; it cannot begin or end one")

    @property
    def owner(self) -> tuple[int, object] | None:
        """(thread, asyncio task or None) that reads the running text; None if nobody does."""
        return self._owner

    def wait_for_turn(self) -> None:
        """Raises Busy if this thread has the turn already, or is inside the running text."""
        self.check_outside()
        if self._owner is not None and self._owner[0] == threading.get_ident():
            raise Busy("this thread has another stream open; finish or close it before starting the next")
        self._turn.acquire()

    def take_turn(self) -> bool:
        """Returns False if a text is running."""
        return self._turn.acquire(blocking=False)

    def run_hook(self, hook: Inside | None) -> None:
        """The text that begins calls this."""
        self._hook = hook

    def hand_over(self, stream: Running, task: object) -> None:
        """From now on this thread, or an asyncio task, reads the text."""
        self._owner = (threading.get_ident(), task)
        self._current = weakref.ref(stream)

    def abandon(self) -> None:
        """Nobody reads the text any more; the next one waits for its turn."""
        self._owner = None

    def end_turn(self) -> None:
        self._owner = None
        self._turn.release()

    @contextmanager
    def between_texts(self) -> Iterator[_core.Engine]:
        """The engine while no text is running. Raises Cancelled if the session is closed."""
        self.check_outside()
        with self._turn, self.lock:
            yield self.engine

    # ---- the running text

    def cancel(self) -> None:
        """Ends the running text, if there is one. Call it under the lock."""
        if self._engine is not None:
            self._engine.cancel()

    def next_chunk(self, wait_us: int) -> _core.TextChunk | None:
        """The next chunk; None if none came in time, or if the session is being closed. Call it under the lock."""
        return None if self._closing else self.engine.next(wait_us)

    def stats(self) -> dict[str, Any] | None:
        """Of the running or the last text; None if the session is closed. Call it under the lock."""
        return None if self._engine is None else self._engine.stats()

    def write_trace(self) -> None:
        """Writes what the workers have recorded to the trace file. Raises DuoError if that fails."""
        if self._trace is not None and self._engine is not None:
            self._trace.add(self._engine, {} if self.network is None else self.network.figures_of_text)

    # ---- end

    def close(self, last: Callable[[_core.Engine], None]) -> None:
        """Ends the running text, then calls `last`, which closes the engine. Safe to call twice.

        Raises DuoError if the trace cannot be written, and Busy inside a text.
        """
        self.check_outside()
        self._closing = True  # a thread that reads chunk after chunk would hardly ever release the lock
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
