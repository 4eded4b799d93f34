"""What a line that begins with a slash does in `duo chat`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

from duo.api.conversation import Conversation
from duo.cli import show
from duo.errors import DuoError
from duo.options.option import Mode
from duo.options.tables import GENERATE_OPTIONS

HELP_TEXT = """  /reset          forget the conversation, but not the system prompt
  /save FILE      write the conversation as JSON
  /load FILE      go on with a conversation from such a file
  /stats          figures of the last answer
  /mode MODE      async, sync or plain from now on; without MODE: which one it is
  /help           these lines
  /exit           end, as Ctrl-D does"""


class Leave(Exception):  # noqa: N818 - no error
    """The user wants to go."""


class Commands:
    """Called with a line; prints to standard error, where nothing of an answer is. Raises DuoError and Leave."""

    def __init__(self, talk: Conversation, options: dict[str, Any]) -> None:
        self._talk, self._options = talk, options

    def __call__(self, line: str) -> None:
        name, _, rest = line[1:].partition(" ")
        known: dict[str, Callable[[str], None]] = {
            "reset": self._reset,
            "save": self._save,
            "load": self._load,
            "stats": self._stats,
            "mode": self._mode,
            "help": self._help,
            "exit": self._exit,
            "quit": self._exit,
        }
        if name not in known:
            raise DuoError(f"there is no command /{name}; /help lists them, and a space before the / makes it text")
        known[name](rest.strip())

    def _reset(self, _rest: str) -> None:
        self._talk.reset()

    def _save(self, rest: str) -> None:
        self._talk.save(self._file(rest, "/save"))
        show.warn(f"{len(self._talk.messages)} messages written to {rest}")

    def _load(self, rest: str) -> None:
        self._talk.load(self._file(rest, "/load"))
        show.warn(f"{len(self._talk.messages)} messages read from {rest}")

    @staticmethod
    def _file(rest: str, command: str) -> Path:
        if not rest:
            raise DuoError(f"{command} needs a file: {command} talk.json")
        if "\0" in rest:
            raise DuoError(f"the file of {command} has a NUL character in its name; remove it")
        try:
            return Path(rest).expanduser()
        except RuntimeError:
            raise DuoError(f"{rest} names the home of a user who is not known; write the whole path") from None

    def _stats(self, _rest: str) -> None:
        if self._talk.last is None:
            raise DuoError("there are no figures before the first answer")
        show.show_figures(self._talk.last, sys.stderr)

    def _mode(self, rest: str) -> None:
        if rest and rest not in get_args(Mode):
            raise DuoError(f"there is no mode {rest}; choose from {', '.join(get_args(Mode))}")
        if rest:
            self._options["mode"] = rest
        show.warn(f"mode {self._options.get('mode', GENERATE_OPTIONS['mode'].default)}")

    def _help(self, _rest: str) -> None:
        print(HELP_TEXT, file=sys.stderr)

    def _exit(self, _rest: str) -> None:
        raise Leave
