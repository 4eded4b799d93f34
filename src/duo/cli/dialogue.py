"""A text that the model and the user write in turn, without a chat template (llama.cpp's llama-completion -i)."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from duo.cli import show
from duo.cli.opening import warn_of_draft
from duo.cli.options import unescape
from duo.errors import BadValueError

if TYPE_CHECKING:
    from duo.generation.stream import Stream
    from duo.model import Duo


class Dialogue:
    """At each stop string of the options the user's turn comes; it stays in the text (llama.cpp's reverse prompts).

    prefix, suffix: around what the user writes. with_bos: the BOS token comes before. escape: \\n is a line end there.
    """

    def __init__(
        self, d: Duo, options: dict[str, Any], *, prefix: str, suffix: str, with_bos: bool, escape: bool, color: bool
    ) -> None:
        self._duo, self._options, self._color, self._escape = d, options, color, escape
        self._stops = [s for s in options.get("stop", ()) if s]
        self._prefix, self._suffix, self._with_bos = prefix, suffix, with_bos
        self._tokens: list[int] = []

    def write(self, prompt: str, *, user_first: bool) -> None:
        """Lets the model and the user write in turn until standard input ends.

        Raises BadValueError: a line is not UTF-8. Raises DuoError: what ended a text, which has been printed.
        """
        self._tokens = self._duo.tokenize(prompt, special=True) if prompt else []
        users_turn = user_first or not self._tokens
        while True:
            if not users_turn:
                self._models_turn()
            line = self._line()
            if line is None:
                return
            if line:
                self._add(line)
            users_turn = not self._tokens

    def _add(self, line: str) -> None:
        """Adds the user's line between the prefix and the suffix of the options. Its words are no special tokens."""
        if self._with_bos and (bos := self._duo.token_bos()) >= 0:
            self._tokens.append(bos)
        typed = unescape(line) if self._escape else line
        for text, special in ((self._prefix, True), (typed, False), (self._suffix, True)):
            if text:
                self._tokens += self._duo.tokenize(text, add_bos=not self._tokens, special=special)
        sys.stdout.write(self._suffix)
        sys.stdout.flush()

    def _models_turn(self) -> None:
        stream = self._duo.stream(self._tokens, **self._options)
        failure = show.TokenPrinter(sys.stdout, self._color, end="").write(stream)
        if failure is not None:
            sys.stdout.write("\n")
            raise failure
        warn_of_draft(self._duo, stream)
        ends = [t for t in stream.result.tokens if self._duo.local_model.is_end(t)]
        self._tokens += [t for t in stream.result.tokens if t not in ends]
        stop = self._stop_string(stream)
        if ends and self._stops:  # as if the model had written the first of them
            stop = self._stops[0]
            self._tokens += self._duo.tokenize(stop, add_bos=False, special=True)
        sys.stdout.write(stop)
        sys.stdout.flush()

    def _stop_string(self, stream: Stream) -> str:
        """The end of the last tokens, which the text lacks: the stop string and what followed it; empty: no stop string
        ended the text."""
        rest = self._duo.decode(stream.result.tokens)[len(stream.result.text) :]
        return rest if any(s in rest for s in self._stops) else ""

    def _line(self) -> str | None:
        """The user's turn, without its line end; None: there are no more."""
        sys.stdout.write(self._prefix)
        sys.stdout.flush()
        data = b"" if sys.stdin is None else sys.stdin.buffer.readline()
        try:
            return data.decode("utf-8").removesuffix("\n").removesuffix("\r") if data else None
        except UnicodeDecodeError as e:
            raise BadValueError(f"a line of standard input is not UTF-8 (byte {e.start}); convert it") from None
