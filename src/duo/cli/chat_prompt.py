"""The line that a user types in `duo chat` on a terminal: editing, history, completion, several lines."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import get_args

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter, WordCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.enums import DEFAULT_BUFFER
from prompt_toolkit.filters import has_focus
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import ColorDepth, Output, create_output
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.shortcuts import CompleteStyle

from duo.cli.chat_history import ChatHistory, history_file
from duo.cli.chat_text import is_open
from duo.errors import BadValueError
from duo.options.option import Mode

PROMPT, MORE = "> ", ". "


class CommandCompleter(Completer):
    """Completes the names of commands, and what follows them: a file, or a mode."""

    def __init__(self, names: Sequence[str]) -> None:
        """names: of the commands, without the slash."""
        self._names = [f"/{name}" for name in names]
        file = PathCompleter(expanduser=True)
        self._values: dict[str, Completer] = {
            **dict.fromkeys(("/save", "/load", "/image", "/audio"), file),
            "/mode": WordCompleter(list(get_args(Mode)), sentence=True),
        }

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        text = document.text_before_cursor
        if not text.startswith("/") or "\n" in text:
            return
        name, space, value = text.partition(" ")
        if not space:
            yield from (Completion(n, -len(name)) for n in self._names if n.startswith(name))
        elif name in self._values:
            yield from self._values[name].get_completions(Document(value.lstrip()), complete_event)


def _keys() -> KeyBindings:
    keys = KeyBindings()
    typing = has_focus(DEFAULT_BUFFER)  # not in a search of the history

    @keys.add("enter", filter=typing)
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if is_open(buffer.text):
            buffer.insert_text("\n")
        elif buffer.text.endswith("\\"):
            buffer.cursor_position = len(buffer.text)
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        else:
            buffer.document = Document(buffer.text.rstrip("\n"))  # a pasted block ends with a line end
            buffer.validate_and_handle()

    @keys.add("escape", "enter", filter=typing)  # Alt-Enter
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return keys


def _output() -> Output:
    output = create_output(always_prefer_tty=True)  # standard error, if answers go to a file
    if isinstance(output, Vt100_Output):
        output.enable_cpr = False  # nothing here asks where the cursor is, and some terminals never answer
    return output


class Prompt:
    """Reads texts from the terminal. A pasted block is part of one text, whatever lines it has."""

    def __init__(self, commands: Sequence[str]) -> None:
        self._session: PromptSession[str] = PromptSession(
            PROMPT,
            multiline=True,
            prompt_continuation=lambda _width, _line, wrapped: "" if wrapped else MORE,
            key_bindings=_keys(),
            history=ChatHistory(history_file()),
            completer=CommandCompleter(commands),
            complete_while_typing=False,
            complete_style=CompleteStyle.READLINE_LIKE,
            color_depth=ColorDepth.DEPTH_1_BIT,
            enable_suspend=True,
            output=_output(),
        )

    def read(self) -> str | None:
        """The next text; None: Ctrl-D. Raises BadValueError: it is not UTF-8.

        Raises KeyboardInterrupt: Ctrl-C, which drops what was typed.
        """
        sys.stdout.flush()
        try:
            text = self._session.prompt()
            text.encode()
            return text
        except EOFError:
            return None
        except UnicodeEncodeError:  # bytes of another encoding
            raise BadValueError("what was typed is not UTF-8; set the terminal to UTF-8") from None
