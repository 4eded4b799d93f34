"""The user's turns, read from a terminal or a pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType, TracebackType

import platformdirs
from typing_extensions import Self

from duo.errors import BadValue

N_HISTORY = 1000  # lines
FENCE = '"""'


def history_file() -> Path:
    return Path(platformdirs.user_state_dir("duo")) / "chat_history"


class Reader:
    """Iterates over turns. On a terminal it has line editing and a history that is kept between conversations."""

    def __init__(self) -> None:
        self.interactive = sys.stdin is not None and sys.stdin.isatty()
        self.one_line = True  # the last turn was a single line without fences
        self._readline: ModuleType | None = None

    def __enter__(self) -> Self:
        if self.interactive:
            with suppress(ImportError):  # some systems have no readline
                import readline

                self._readline = readline
                with suppress(OSError):
                    readline.read_history_file(history_file())
        return self

    def __exit__(self, _t: type[BaseException] | None, _e: BaseException | None, _tb: TracebackType | None) -> None:
        if self._readline is not None:
            with suppress(OSError):  # failing to save the history is no error
                history_file().parent.mkdir(parents=True, exist_ok=True)
                history_file().touch(mode=0o600)  # other users must not read it
                self._readline.set_history_length(N_HISTORY)
                self._readline.write_history_file(history_file())

    def __iter__(self) -> Iterator[str]:
        while (turn := self._turn()) is not None:
            if turn.strip():
                yield turn

    def _line(self, prompt: str) -> str | None:
        """A line without its line end; None: end of input."""
        if sys.stdin is None:
            return None
        try:
            if self.interactive:
                return input(prompt)
            line = sys.stdin.buffer.readline()
            return line.decode("utf-8").removesuffix("\n").removesuffix("\r") if line else None
        except EOFError:
            sys.stdout.write("\n")
            return None
        except UnicodeDecodeError as e:
            raise BadValue(f"a line of standard input is not UTF-8 (byte {e.start}); convert it") from None

    def _turn(self) -> str | None:
        while True:
            try:
                return self._whole_turn()
            except KeyboardInterrupt:
                if not self.interactive:
                    raise
                sys.stdout.write("\n")  # drops the typed line, as a shell does

    def _whole_turn(self) -> str | None:
        line = self._line("> ")
        if line is None:
            return None
        if line.lstrip().startswith(FENCE):
            self.one_line = False
            return self._fenced(line.lstrip().removeprefix(FENCE))
        lines = [line]
        while lines[-1].endswith("\\") and (more := self._line(". ")) is not None:
            lines[-1] = lines[-1].removesuffix("\\")
            lines.append(more)
        self.one_line = len(lines) == 1
        return "\n".join(lines)

    def _fenced(self, line: str) -> str:
        lines: list[str] = []
        more: str | None = line
        while more is not None and not more.rstrip().endswith(FENCE):
            lines.append(more)
            more = self._line(". ")
        if more is not None:
            lines.append(more.rstrip().removesuffix(FENCE))
        return "\n".join(lines).strip("\n")
