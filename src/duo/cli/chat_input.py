"""The user's turns, read from a terminal or a pipe."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from duo.cli.chat_text import FENCE, is_open, without_fences
from duo.errors import BadValueError

if TYPE_CHECKING:
    from duo.cli.chat_prompt import Prompt


def _is_terminal(stream: object) -> bool:
    return stream is not None and bool(getattr(stream, "isatty", lambda: False)())


def _prompt(commands: Sequence[str]) -> Prompt | None:
    """The line editor for this terminal; None: the terminal cannot show one."""
    if os.environ.get("TERM") == "dumb" or not (_is_terminal(sys.stdout) or _is_terminal(sys.stderr)):
        return None
    from duo.cli.chat_prompt import Prompt  # takes a moment to import

    return Prompt(commands)


class TurnReader:
    """Reads turn by turn. On a terminal with line editing; the history is kept between conversations."""

    def __init__(self, commands: Sequence[str], first: str | None = None, *, plain: bool = False) -> None:
        """commands: their names without the slash, to complete them. first: comes before the turns that are read.
        plain: lines are read without editing, on a terminal too."""
        self._first = first
        self.interactive = _is_terminal(sys.stdin)
        self.one_line = True  # the last turn was a single line without fences
        self._prompt = _prompt(commands) if self.interactive and not plain else None

    def read(self) -> str | None:
        """The next turn that is not empty; None: there are no more.

        Raises BadValueError: it is not UTF-8. Raises KeyboardInterrupt: Ctrl-C; what was typed is dropped.
        """
        first, self._first = self._first, None
        if first is not None and first.strip():
            self.one_line = False  # it is no command
            return first
        while (turn := self._turn()) is not None:
            if turn.strip():
                return turn
        return None

    def _turn(self) -> str | None:
        text = self._text()
        if text is None:
            return None
        turn = without_fences(text)
        self.one_line = turn is None and "\n" not in text
        return text if turn is None else turn

    def _text(self) -> str | None:
        """A line, or lines that belong together, with their fences; None: end of input."""
        if self._prompt is not None:
            return self._prompt.read()
        text = self._line("> ")
        if text is None:
            return None
        if text.lstrip().startswith(FENCE):
            while is_open(text) and (more := self._line(". ")) is not None:
                text += f"\n{more}"
            return text
        while text.endswith("\\") and (more := self._line(". ")) is not None:
            text = f"{text.removesuffix(chr(92))}\n{more}"
        return text

    def _line(self, prompt: str) -> str | None:
        """A line without its line end; None: end of input."""
        if sys.stdin is None:
            return None
        if self.interactive:
            sys.stdout.write(prompt)
            sys.stdout.flush()
        try:
            line = sys.stdin.buffer.readline()
            if self.interactive and not line:
                sys.stdout.write("\n")
            return line.decode("utf-8").removesuffix("\n").removesuffix("\r") if line else None
        except UnicodeDecodeError as e:
            raise BadValueError(f"a line of standard input is not UTF-8 (byte {e.start}); convert it") from None
        except KeyboardInterrupt:
            if self.interactive:
                sys.stdout.write("\n")
            raise
