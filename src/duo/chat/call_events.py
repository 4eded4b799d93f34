"""What has been found in an answer: its text, and its calls of tools in pieces."""

from __future__ import annotations

from duo.chat.piecewise_text import PiecewiseText, Wait
from duo.chat.tool_calls import MARKS, Call, CallPiece

Event = str | CallPiece | Call
# No JSON has them outside of its strings: arguments that lack a brace end there.
STOPS = (*MARKS, *sorted({end for ends in MARKS.values() for end in ends}))


class CallEvents:
    """source: what is told is cut out of it. n_calls: those that are complete."""

    def __init__(self, source: PiecewiseText) -> None:
        self.n_calls = 0
        self._source = source
        self._events: list[Event] = []
        self._sent: list[str] = []  # the arguments of the call that is being written
        self._white: list[str] = []  # white space that a call may follow, which has none before it
        self._shown = False  # some of the text was

    def take(self) -> list[Event]:
        """Those since the last call."""
        events, self._events = self._events, []
        return events

    # ---- text

    def show(self, n: int) -> None:
        """The next characters are text. White space at its end waits for what follows."""
        text = self._source.cut(n)
        shown = text.rstrip()
        if shown:
            whole = "".join((*self._white, shown))
            self._events.append(whole.lstrip() if self.n_calls and not self._shown else whole)
            self._white.clear()
            self._shown = True
        if len(shown) < len(text):
            self._white.append(text[len(shown) :])

    def end(self) -> None:
        """All that is left is text, and nothing follows."""
        self.show(len(self._source.text))
        if self._white and not self.n_calls:
            self._events.append("".join(self._white))
        self._white.clear()

    # ---- calls

    def told(self, call: Call) -> bool:
        """The call is complete."""
        self._source.cut(self._source.at)
        self._white.clear()
        self._events.append(call)
        self.n_calls += 1
        self._sent = []
        return True

    def whole(self, call: Call) -> bool:
        """Nothing of it was told before."""
        self._events.append(CallPiece(self.n_calls, call.name, call.id, call.arguments))
        return self.told(call)

    def arguments(self, name: str, call_id: str = "") -> Wait[str]:
        """At their brace."""
        self._events.append(CallPiece(self.n_calls, name, call_id))
        self._source.cut(self._source.at)
        yield from self._source.value(self._took, STOPS)
        return "".join(self._sent)

    def _took(self, piece: str) -> None:
        if piece:
            self._sent.append(piece)
            self._events.append(CallPiece(self.n_calls, arguments=piece))

    def named(self, name: str | None, call_id: str = "") -> Wait[bool]:
        """A call whose arguments are to come."""
        if not name or (yield from self._source.spaces()) != "{":
            return False
        return self.told(Call(name, (yield from self.arguments(name, call_id)), call_id))
