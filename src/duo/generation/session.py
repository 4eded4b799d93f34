"""The engine of a loaded pair, its locks, and the turns of the texts."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from duo import _core
from duo.errors import BadValueError, BusyError, CancelledError
from duo.generation.pump import ChunkPump
from duo.generation.timings import Timings
from duo.generation.trace_writer import Event, take_events
from duo.generation.turns import Turn, Turns
from duo.placement.belongings import Belongings
from duo.support.home_process import HomeProcess, PerProcess

# Longest wait for a chunk, so that Ctrl-C and close() from another thread take effect.
SLICE_US = 50_000


class Running(Protocol):
    """A text that is being generated."""

    def abort(self) -> None: ...


class RunningHook(Protocol):
    """A program's own function, which the target's thread may be in."""

    @property
    def is_here(self) -> bool: ...


class NetworkLink(Protocol):
    """A session's connections to a model on another machine."""

    @property
    def figures_of_texts(self) -> dict[str, Any]: ...

    def begin_text(self) -> None: ...

    def text_began(self, slot: int, /) -> None: ...

    def end_text(self, slot: int, /) -> tuple[dict[str, Any], str]: ...


class Trace(Protocol):
    """Where the workers' events go."""

    @property
    def wanted(self) -> bool: ...

    def add(self, events: Sequence[Event], network: dict[str, Any]) -> None: ...

    def close(self) -> None: ...


class EngineSession:
    """Several texts at a time; more wait for their turn. Every method may be called from any thread."""

    def __init__(
        self,
        engine: _core.Engine,
        *,
        network: NetworkLink | None = None,
        trace: Trace | None = None,
        belongings: Belongings | None = None,
        n_texts: int = 1,
    ) -> None:
        """belongings: of the models' files; None: they have none. n_texts: at a time."""
        self.network = network
        self._n_always = 0  # who wants texts to speculate whatever it costs
        self.timings: Timings = {}  # of the text that ended last
        self.home = HomeProcess()  # that of its threads; a forked child writes nothing and waits for nobody
        # Guards what follows and the trace. Reentrant: the garbage collector may close a stream at any point.
        self.lock = PerProcess(threading.RLock)
        self._engine: _core.Engine | None = engine
        self._trace = trace
        self._belongings = belongings
        self.turns = Turns(n_texts)
        self._running: weakref.WeakSet[Running] = weakref.WeakSet()
        self._hooks: list[RunningHook] = []  # of the running texts
        self._closing = False
        self._pump: ChunkPump | None = None
        self._gate = PerProcess(threading.RLock)  # held for good when the program ends

    # ---- models

    @property
    def engine(self) -> _core.Engine:
        """Raises CancelledError if the session is closed."""
        if self._engine is None:
            raise CancelledError("this Duo is closed; make a new one")
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
        """What a saved cache belongs to, by the role of the model. Raises BadValueError: the target is elsewhere."""
        if self._belongings is None:
            raise BadValueError("this session's models have no files; their caches cannot be saved")
        return self._belongings.of(self.engine)

    # ---- turns

    @property
    def in_hook(self) -> bool:
        """Whether this is the target's thread, in a function of the program's own: it cannot wait for a text."""
        if not self.home.is_this:
            return False
        with self.lock():
            return any(hook.is_here for hook in self._hooks)

    def check_outside(self) -> None:
        """Raises BusyError if the caller is a logits_processor or stopping_criteria of a running text."""
        if self.in_hook:
            raise BusyError("a logits_processor or stopping_criteria runs inside a text; it cannot begin or end one")

    def wait_for_turn(self, turn: Turn) -> None:
        """End the turn whatever this raises. BusyError: this thread reads all texts that are written, or is inside
        one. BadValueError: this is a forked child."""
        self.home.require()
        self.check_outside()
        self.turns.wait(self.turns.ask(turn))

    @contextmanager
    def between_texts(self) -> Iterator[_core.Engine]:
        """The engine while no text is written. Raises BusyError, and CancelledError if the session is closed."""
        turn = self.turns.new(alone=True)
        try:
            self.wait_for_turn(turn)
            yield self.engine
        finally:
            self.turns.end(turn)

    # ---- texts

    @property
    def always(self) -> bool:
        """Whether texts that begin now speculate even if it does not pay off."""
        return self._n_always > 0

    @contextmanager
    def speculating_always(self) -> Iterator[None]:
        """Texts that begin meanwhile speculate even if it does not pay off."""
        with self.lock():
            self._n_always += 1
        try:
            yield
        finally:
            with self.lock():
                self._n_always -= 1

    def add_hook(self, hook: RunningHook | None) -> None:
        """A text with this function will begin."""
        with self.lock():
            if hook is not None:
                self._hooks.append(hook)

    def add(self, stream: Running) -> None:
        """The text has begun. Raises CancelledError: the session is being closed, and would not end this text."""
        with self.lock():
            if self._closing:
                raise CancelledError("this Duo is closed; make a new one")
            self._running.add(stream)

    def remove(self, stream: Running | None, hook: RunningHook | None) -> None:
        """The text has ended, or did not begin (None)."""
        with self.lock():
            if stream is not None:
                self._running.discard(stream)
            if hook is not None and hook in self._hooks:
                self._hooks.remove(hook)

    def cancel(self, text: _core.Text) -> None:
        """Returns when the text has ended."""
        if (engine := self._engine) is not None:
            engine.cancel(text)

    def next_chunk(self, text: _core.Text, wait_us: int) -> _core.TextChunk | None:
        """The text's next chunk; None if none came in time, or if the session is being closed."""
        chunk = None if self._closing else self.engine.next(text, wait_us)
        return None if self._closing else chunk

    def wait_news(self, seen: int) -> int:
        """Waits for a chunk of any text, a twentieth of a second at most. Returns a count of all chunks.

        Raises CancelledError if the session is closed.
        """
        return self.engine.wait_news(seen, SLICE_US)

    @property
    def pump(self) -> ChunkPump:
        """The thread that reads the texts of event loops."""
        with self.lock():
            if self._pump is None:
                self._pump = ChunkPump(self)
            return self._pump

    def write_trace(self) -> None:
        """Hands what the workers have recorded to the trace, if it is wanted. Raises DuoError if that fails."""
        with self.lock():
            if self._trace is not None and self._trace.wanted and self._engine is not None:
                events = take_events(self._engine)
                self._trace.add(events, {} if self.network is None else self.network.figures_of_texts)

    # ---- end

    def hold_readers(self) -> None:
        """From now on threads that read a text wait for ever, instead of coming back while the interpreter goes."""
        self._gate().acquire()

    def pass_gate(self) -> None:
        """A thread that reads a text calls this where it holds no lock."""
        if self._closing:
            with self._gate():
                pass

    def close(self, last: Callable[[_core.Engine], None]) -> None:
        """Ends the running texts, then calls `last`, which closes the engine. Safe to call twice.

        Raises DuoError if the trace cannot be written, and BusyError inside a text.
        """
        if not self.home.is_this:  # texts, trace and files are the parent's
            engine, self._engine, self._trace = self._engine, None, None
            if engine is not None:
                last(engine)
            return
        self.check_outside()
        with self.lock():
            if (engine := self._engine) is None or self._closing:
                return
            self._closing = True  # streams give out nothing more
            running = list(self._running)
        engine.cancel_all()
        for stream in running:
            stream.abort()  # waits for the thread that reads it
        with self.lock():
            try:
                self.write_trace()
                if self._trace is not None:
                    self._trace.close()
            finally:
                self._trace = self._engine = None
                last(engine)
