"""One thread reads all texts of event loops, so that a hundred tasks need no hundred threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from duo.errors import CancelledError
from duo.support.home_process import PerProcess

if TYPE_CHECKING:
    from duo.generation.result import Chunk


class Readable(Protocol):
    """A text that is being generated."""

    def take_ready(self) -> Chunk | None: ...


class ChunkSource(Protocol):
    """The session of the texts."""

    def wait_news(self, seen: int) -> int: ...

    def pass_gate(self) -> None: ...


# Called in the pump's thread with what has come: chunks, why it failed, whether it has ended. It must not block.
Sink = Callable[["list[Chunk]", "BaseException | None", bool], None]


class ChunkPump:
    """Every method may be called from any thread. The thread runs while there is a text to read."""

    def __init__(self, source: ChunkSource) -> None:
        self._source = source
        self._lock = PerProcess(threading.Lock)
        self._sinks: dict[Readable, Sink] = {}
        self._runs = False

    def add(self, text: Readable, sink: Sink) -> None:
        """From now on the text's chunks go to the sink: (chunks, error, ended)."""
        with self._lock():
            self._sinks[text] = sink
            if not self._runs:
                self._runs = True
                threading.Thread(target=self._run, name="duo-pump", daemon=True).start()

    def remove(self, text: Readable) -> None:
        """The sink gets nothing more, but for what is on its way."""
        with self._lock():
            self._sinks.pop(text, None)

    def _run(self) -> None:
        seen = 0
        while True:
            with self._lock():
                if not self._sinks:
                    self._runs = False
                    return
                texts = list(self._sinks.items())
            for text, sink in texts:
                self._read(text, sink)
            try:
                self._source.pass_gate()
                seen = self._source.wait_news(seen)
            except CancelledError:
                time.sleep(0.005)  # closed: the texts are ended one after the other, each with its own error
            self._source.pass_gate()

    def _read(self, text: Readable, sink: Sink) -> None:
        chunks: list[Chunk] = []
        error: BaseException | None = None
        ended = False
        try:
            while not ended and (chunk := text.take_ready()) is not None:
                chunks.append(chunk)
                ended = chunk.finish_reason is not None
        except StopIteration:
            ended = True
        except BaseException as e:
            error, ended = e, True
        if ended:
            self.remove(text)
        if chunks or ended:
            sink(chunks, error, ended)
