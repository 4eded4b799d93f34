"""The progress bar on standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

Kind = Literal["share", "count", "bytes", "text"]
Show = Callable[..., None]  # (what, done=None, total=None)


@contextmanager
def progress(kind: Kind, *, lines: bool = False, after_s: float = 0.0) -> Iterator[Show]:
    """Yields a function that draws how much of what is done; it draws nothing if standard error is no terminal.

    lines: one line for each thing; otherwise the last thing has the line. after_s: draw nothing sooner. It draws only
    when it is called: a drawing thread would slow down what is measured.
    """
    if not sys.stderr.isatty():
        yield lambda what, done=None, total=None: None
        return
    from rich import progress as rich
    from rich.console import Console

    columns: dict[str, tuple[rich.ProgressColumn, ...]] = {
        "share": (rich.BarColumn(), rich.TaskProgressColumn(), rich.TimeRemainingColumn()),
        "count": (rich.BarColumn(), rich.MofNCompleteColumn(), rich.TimeRemainingColumn()),
        "bytes": (rich.BarColumn(), rich.DownloadColumn(), rich.TransferSpeedColumn()),
        "text": (),
    }
    text = rich.TextColumn("{task.description}")
    began = time.monotonic()
    with rich.Progress(text, *columns[kind], console=Console(stderr=True), transient=True, auto_refresh=False) as bar:
        tasks: dict[str, rich.TaskID] = {}

        def show(what: str, done: float | None = None, total: float | None = None) -> None:
            line = what if lines else ""
            if line not in tasks:
                if time.monotonic() - began < after_s:
                    return
                tasks[line] = bar.add_task(what, total=total)
            bar.update(tasks[line], description=what, completed=done, total=total, refresh=True)

        yield show


class Bar:
    """How many answers are there, with a progress bar."""

    def __init__(self) -> None:
        self.done, self.total = 0, 0
        self._draw: Callable[[str], None] = lambda _name: None

    @property
    def complete(self) -> bool:
        return self.done >= self.total

    @contextmanager
    def shown(self) -> Iterator[None]:
        with progress("count") as show:
            self._draw = lambda name: show(f"{name:<12}", self.done, self.total)
            yield

    def __call__(self, done: int, total: int, name: str) -> None:
        self.done, self.total = done, total
        self._draw(name)
