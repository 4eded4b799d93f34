"""After a fork: the child has a copy of every object, but no thread of the parent besides the one that forked."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Generic, TypeVar

from duo.errors import BadValueError

T = TypeVar("T")


class HomeProcess:
    """The process in which an object was made."""

    def __init__(self) -> None:
        self._pid = os.getpid()

    @property
    def is_this(self) -> bool:
        """False in a child that was forked later."""
        return self._pid == os.getpid()

    def require(self) -> None:
        """Raises BadValueError in such a child."""
        if not self.is_this:
            raise BadValueError(
                "this Duo belongs to the process that this one was forked from, and so do its threads; make a Duo in "
                "this process"
            )


class PerProcess(Generic[T]):
    """Something that a forked child needs anew, such as a lock: who held it in the parent never frees the copy."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._made = {os.getpid(): make()}

    def __call__(self) -> T:
        """That of this process: the same for all its threads."""
        made = self._made.get(os.getpid())
        return self._made.setdefault(os.getpid(), self._make()) if made is None else made
