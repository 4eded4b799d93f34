"""Whose turn it is to have a text written: first come, first served, so many at once."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from duo.errors import BusyError, CancelledError
from duo.support.home_process import PerProcess

# (thread, asyncio task or None) that reads a text.
Owner = tuple[int, object]


class Turn:
    """A place in the queue, and then the right to have a text written."""

    def __init__(self, weight: int) -> None:
        self.weight = weight  # slots that it takes
        self.granted = False
        self.called_off = False  # before it was granted
        self.owner: Owner | None = None  # who reads the text; None: nobody
        self.on_granted: Callable[[], None] | None = None  # called once, in any thread; it must not block


class Turns:
    """Every method may be called from any thread."""

    def __init__(self, n: int) -> None:
        self.n = n  # at once
        self._condition = PerProcess(threading.Condition)
        self._queue: deque[Turn] = deque()
        self._running: list[Turn] = []

    @property
    def _changed(self) -> threading.Condition:
        return self._condition()

    def new(self, *, alone: bool = False) -> Turn:
        """A turn that has not asked yet. alone: for what runs while nothing else does.

        Ctrl-C may come between any two instructions. Who makes a turn first, and asks and waits where `end` follows
        whatever happens, cannot lose it.
        """
        return Turn(self.n if alone else 1)

    def ask(self, turn: Turn | None = None, *, on_granted: Callable[[], None] | None = None) -> Turn:
        """Joins the queue. on_granted: called when the turn has come."""
        turn = turn or self.new()
        turn.on_granted = on_granted
        with self._changed:
            self._queue.append(turn)
            self._grant()
        return turn

    def _grant(self) -> None:
        while self._queue and sum(t.weight for t in self._running) + self._queue[0].weight <= self.n:
            turn = self._queue.popleft()
            turn.granted = True
            self._running.append(turn)
            if turn.on_granted is not None:
                turn.on_granted()
        self._changed.notify_all()

    def wait(self, turn: Turn) -> Turn:
        """Waits until the turn has come. Raises BusyError: this thread reads all running texts, so it would wait for
        itself. Raises CancelledError: it was called off."""
        with self._changed:
            try:
                me = threading.get_ident()
                while not turn.granted:
                    if turn.called_off:
                        raise CancelledError("the text was stopped before it began")
                    self._check(turn, lambda owner: owner[0] == me, "thread")
                    self._changed.wait()
            except BaseException:
                self._end(turn)
                raise
        return turn

    def call_off(self, turn: Turn) -> None:
        """Who waits for it, now or later, waits no more. A turn that has come stays."""
        with self._changed:
            turn.called_off = not turn.granted
            self._changed.notify_all()

    def check(self, turn: Turn, is_own: Callable[[Owner], bool], who: str) -> None:
        """Raises BusyError: the caller (is_own) reads all texts that this turn waits for. who: thread, task."""
        with self._changed:
            self._check(turn, is_own, who)

    def _check(self, turn: Turn, is_own: Callable[[Owner], bool], who: str) -> None:
        owners = [t.owner for t in self._running]
        if not turn.granted and owners and all(o is not None and is_own(o) for o in owners):
            raise BusyError(f"this {who} has another stream open; finish or close it before starting the next")

    def end(self, turn: Turn) -> None:
        """Gives the turn back, or leaves the queue. Safe to call twice."""
        with self._changed:
            self._end(turn)

    def _end(self, turn: Turn) -> None:
        if turn.granted:
            if turn in self._running:
                self._running.remove(turn)
        elif turn in self._queue:  # it may be long
            self._queue.remove(turn)
        self._grant()

    @property
    def owners(self) -> list[Owner]:
        """Who reads the running texts."""
        with self._changed:
            return [t.owner for t in self._running if t.owner is not None]
