"""The slash commands of `duo chat`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from duo.cli import show
from duo.errors import BadValueError
from duo.options.option import Mode
from duo.options.tables import GENERATE_OPTIONS
from duo.support.wording import plural

if TYPE_CHECKING:
    from duo.conversation import Conversation

HELP_TEXT = """  /reset          clear the conversation, but keep the system prompt
  /save FILE      save the conversation as JSON
  /load FILE      continue a saved conversation
  /image FILE     the next question is about this picture
  /audio FILE     the next question is about this sound
  /stats          show the figures of the last answer
  /mode MODE      switch to async, sync or plain; without MODE: show the mode
  /help           show this list
  /exit           quit, like Ctrl-D"""


class Leave(Exception):  # noqa: N818 - no error
    """The user wants to quit."""


class Commands:
    """Called with a line; prints to standard error, apart from the answers. Raises DuoError and Leave."""

    def __init__(self, talk: Conversation, options: dict[str, Any]) -> None:
        self._talk, self._options = talk, options
        self._commands: dict[str, Callable[[str], None]] = {
            "reset": self._reset,
            "save": self._save,
            "load": self._load,
            "image": self._image,
            "audio": self._audio,
            "stats": self._stats,
            "mode": self._mode,
            "help": self._help,
            "exit": self._exit,
            "quit": self._exit,
        }

    @property
    def names(self) -> list[str]:
        """All of them, without the slash."""
        return sorted(self._commands)

    def __call__(self, line: str) -> None:
        name, _, rest = line[1:].partition(" ")
        if name not in self._commands:
            raise BadValueError(
                f"unknown command /{name}; /help lists the commands, a space before the / makes it text"
            )
        self._commands[name](rest.strip())

    def _reset(self, _rest: str) -> None:
        n = len(self._talk.messages)
        self._talk.reset()
        kept = "; the system prompt stays" if self._talk.messages else ""
        show.warn(f"{plural(n - len(self._talk.messages), 'message')} removed{kept}")

    def _save(self, rest: str) -> None:
        self._talk.save(self._file(rest, "/save"))
        show.warn(f"{len(self._talk.messages)} messages written to {rest}")

    def _load(self, rest: str) -> None:
        self._talk.load(self._file(rest, "/load"))
        show.warn(f"{len(self._talk.messages)} messages read from {rest}")

    def _image(self, rest: str) -> None:
        self._show(rest, "/image", "photo.png")

    def _audio(self, rest: str) -> None:
        self._show(rest, "/audio", "speech.wav")

    def _show(self, rest: str, command: str, example: str) -> None:
        self._talk.show(self._file(rest, command, example))
        show.warn(f"the next question is about {rest}")

    @staticmethod
    def _file(rest: str, command: str, example: str = "talk.json") -> Path:
        if not rest:
            raise BadValueError(f"{command} needs a file: {command} {example}")
        if "\0" in rest:
            raise BadValueError(f"the file name after {command} contains a NUL character; remove it")
        try:
            return Path(rest).expanduser()
        except RuntimeError:
            raise BadValueError(f"{rest} names the home folder of an unknown user; write the full path") from None

    def _stats(self, _rest: str) -> None:
        if self._talk.last is None:
            raise BadValueError("there are no figures yet; ask something first")
        show.show_figures(self._talk.last, sys.stderr)

    def _mode(self, rest: str) -> None:
        if rest and rest not in get_args(Mode):
            raise BadValueError(f"unknown mode {rest}; choose from {', '.join(get_args(Mode))}")
        if rest:
            self._options["mode"] = rest
        show.warn(f"mode {self._options.get('mode', GENERATE_OPTIONS['mode'].default)}")

    def _help(self, _rest: str) -> None:
        print(HELP_TEXT, file=sys.stderr)

    def _exit(self, _rest: str) -> None:
        raise Leave
