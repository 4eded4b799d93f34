"""A race on a terminal: two columns, live. The target alone is on the left, the pair on the right."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text
from typing_extensions import Self

from duo.benchmark.race import Lane

EVERY_S = 0.1  # between two pictures; drawing takes time from the models
LEAST_ROWS, LEAST_WIDTH = 4, 40
AROUND = 9  # rows of the terminal for all but the text

FIRST = "The target alone writes first, then both models. At once they would take the cores from each other."
SECOND = "On the left, bright: how far the target alone was at the same time on the stopwatch."
LAST = "On the left, bright: what the target alone had when the pair was done. Green: tokens that the draft guessed."


def can_show(stream: TextIO) -> bool:
    """Whether the stream is a terminal with room for two columns."""
    if not stream.isatty():
        return False
    console = Console(file=stream)
    return not console.is_dumb_terminal and console.width >= LEAST_WIDTH and console.height > AROUND + LEAST_ROWS


class Screen:
    """Draws both lanes when it is told to look at them, ten times a second at most."""

    def __init__(self, console: Console, prompt: str, lanes: tuple[Lane, Lane]) -> None:
        self._console = console
        self._prompt, self._lanes = prompt, lanes
        # No thread of its own: it would draw while a model works, however busy the cores are.
        # Messages come above the picture, unless they go to a file.
        self._live = Live(
            console=self._console, auto_refresh=False, vertical_overflow="crop", redirect_stderr=sys.stderr.isatty()
        )
        self._drawn = 0.0

    def __enter__(self) -> Self:
        self._live.start()
        self.draw()
        return self

    def __exit__(self, _t: type[BaseException] | None, _e: BaseException | None, _tb: TracebackType | None) -> None:
        if _t is None:
            self.draw()
        self._live.stop()

    def look(self) -> None:
        """Draws, if the last picture is old enough."""
        if time.monotonic() - self._drawn >= EVERY_S:
            self.draw()

    def draw(self) -> None:
        self._live.update(self.picture(), refresh=True)
        self._drawn = time.monotonic()

    def picture(self) -> RenderableType:
        """The picture that the terminal shows now."""
        alone, pair = self._lanes
        inner = max(10, self._console.width // 2 - 4)
        most = max(LEAST_ROWS, self._console.height - AROUND)
        chasing = pair.state in ("writes", "done")
        n_bright = alone.n_at(pair.stopwatch) if chasing else len(alone.pieces)
        windows = [
            _window(self._console, alone, n_bright if chasing else None, inner, most),
            _window(self._console, pair, None, inner, most),
        ]
        rows = max(LEAST_ROWS, *(len(w) for w in windows))
        grid = Table.grid(expand=True)
        grid.add_column(ratio=1)
        grid.add_column(ratio=1)
        ghost = n_bright if chasing and pair.state == "writes" else None
        grid.add_row(
            *(
                Panel(
                    Text("\n").join(w),
                    title=f"[bold]{lane.name}[/bold]: {lane.about}",
                    title_align="left",
                    subtitle=_state(lane, ghost if lane is alone else None, pair.stopwatch),
                    subtitle_align="right",
                    height=rows + 2,
                )
                for lane, w in zip(self._lanes, windows, strict=True)
            )
        )
        says = FIRST if not chasing else LAST if pair.state == "done" else SECOND
        prompt = Text(self._prompt.strip().replace("\n", " "), style="italic", no_wrap=True, overflow="ellipsis")
        return Group(prompt, grid, Text(says, style="dim", no_wrap=True, overflow="ellipsis"))


def _state(lane: Lane, n_then: int | None, then_s: float) -> str:
    """The line below a column: how far it is, and when. n_then: tokens at that time, of a lane that is done."""
    if lane.state == "waits":
        return "waits"
    if lane.state == "loads":
        return f"loading {lane.loaded:.0%}"
    if n_then is not None and n_then < len(lane.pieces):
        return f"{then_s:.1f} s: {n_then} of {lane.n_tokens} tokens"
    speed = f", {lane.per_second:.1f} tokens/s" if lane.seconds > 0 else ""
    done = "[bold]done[/bold] after " if lane.state == "done" else ""
    return f"{done}{lane.stopwatch:.1f} s: {lane.n_tokens} tokens{speed}"


def _window(console: Console, lane: Lane, n_bright: int | None, width: int, most: int) -> list[Text]:
    """The lines of a text around the token that is new. n_bright: pieces before those that are dimmed; None: all."""
    text, n_chars = Text(), 0
    for i, piece in enumerate(lane.pieces):
        if n_bright is None or i < n_bright:
            n_chars += len(piece.text)
        style = "green" if piece.guessed else "dim" if n_bright is not None and i >= n_bright else ""
        text.append(piece.text, style)
    lines = list(text.wrap(console, width))
    if len(lines) <= most:
        return lines
    seen, at = 0, 0
    for at, line in enumerate(lines):  # noqa: B007 - the line of the last bright character
        seen += len(line.plain) + 1
        if seen >= n_chars:
            break
    end = len(lines) if n_bright is None or n_bright >= len(lane.pieces) else min(len(lines), max(most, at + 2))
    return lines[end - most : end]
