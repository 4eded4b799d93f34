"""The history of `duo chat`: the turns that were typed, kept between conversations."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import platformdirs
from prompt_toolkit.history import FileHistory

from duo.support.atomic import write_whole
from duo.support.home import below_home

N_HISTORY = 1000  # turns
ENTRY = "\n# "  # what each turn begins with in prompt_toolkit's format
LIBEDIT, OCTAL = b"_HiStOrY_V2_", re.compile(rb"\\([0-3][0-7]{2})")  # its first line; it writes a space as \040


def history_file() -> Path:
    return below_home(lambda: platformdirs.user_state_path("duo")) / "chat_history"


class ChatHistory(FileHistory):
    """prompt_toolkit's history file, which only its owner can read. Failing to read or write it is no error."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._path = path

    def load_history_strings(self) -> Iterable[str]:
        """Newest first."""
        try:
            old = self._lines_of_readline()
            turns = list(super().load_history_strings())[::-1] if old is None else old
            if old is not None or len(turns) > N_HISTORY:
                turns = turns[-N_HISTORY:]
                self._write_anew(turns)
        except OSError:
            return []
        return turns[::-1]

    def store_string(self, string: str) -> None:
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.touch(mode=0o600)  # other users must not read it
            super().store_string(string)

    def _lines_of_readline(self) -> list[str] | None:
        """Of a file that readline or libedit wrote, as duo up to 0.2 did. None: it is in prompt_toolkit's format."""
        data = self._path.read_bytes()
        if not data or data.startswith(ENTRY.encode()):
            return None
        lines = [line for line in data.split(b"\n") if line]
        if lines and lines[0] == LIBEDIT:
            lines = [OCTAL.sub(lambda m: bytes([int(m[1], 8)]), line) for line in lines[1:]]
        return [line.decode("utf-8", "replace") for line in lines]

    def _write_anew(self, turns: list[str]) -> None:
        """Replaces the file. Raises OSError."""
        when = datetime.fromtimestamp(self._path.stat().st_mtime)
        entries = (f"{ENTRY}{when}\n" + "".join(f"+{line}\n" for line in turn.split("\n")) for turn in turns)
        write_whole(self._path, "".join(entries).encode("utf-8", "replace"))
