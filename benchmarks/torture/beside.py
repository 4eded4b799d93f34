"""Work in other threads while something else happens."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def beside(*works: Callable[[], object]) -> Iterator[None]:
    """Each work runs in a thread of its own while the block does; its end waits for all. Raises their first error."""
    errors: list[BaseException] = []

    def run(work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for t in threads:
        t.start()
    try:
        yield
    finally:
        for t in threads:
            t.join()
    if errors:
        raise errors[0]
