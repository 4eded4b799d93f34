"""One text on its way into the dicts of `duo.compat.openai`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from duo.chat.reading import AnswerReader, CallReader, Part, joined
from duo.compat.openai.answers import AnswerDicts, finish_reason, text_choice, usage
from duo.compat.openai.logprobs import LogprobLists, joined_lists
from duo.compat.openai.shapes import Completion, CompletionChunk, Logprobs
from duo.generation.result import Chunk, TokenLogprobs

if TYPE_CHECKING:
    from duo import _core
    from duo.generation.stream import Stream


class Spelled:
    """The text of a stream with its control tokens spelled out where they stand, which the text itself leaves out
    unless the model was loaded with `special`."""

    def __init__(self, model: _core.Model) -> None:
        self._model = model
        self._marks: list[tuple[int, bytes]] = []  # and bytes of text before each
        self._n_tokens = self._n_text = 0  # bytes of the tokens so far, and of the text: it may come later
        self._bytes = b""

    def add(self, chunk: Chunk) -> None:
        if chunk.token is not None and not self._model.is_end(chunk.token):
            piece = self._model.written(chunk.token)
            self._n_tokens += len(piece)
            if not piece and chunk.token < self._model.n_vocab:
                self._marks.append((self._n_tokens, self._model.piece(chunk.token, True)))
        data = chunk.text.encode()
        while self._marks and self._marks[0][0] <= self._n_text + len(data):
            n, mark = self._marks.pop(0)
            n = max(0, n - self._n_text)
            self._bytes += data[:n] + mark
            data, self._n_text = data[n:], self._n_text + n
        self._bytes += data
        self._n_text += len(data)

    def take(self) -> str:
        """The text since the last call."""
        data, self._bytes = self._bytes, b""
        return data.decode("utf-8", "replace")


class Reading:
    """A stream's text as its parts: thoughts, the answer, calls of tools, which come in pieces, too."""

    def __init__(self, spelled: Spelled, reader: AnswerReader | CallReader) -> None:
        self._spelled, self._reader = spelled, reader
        self._parts: list[Part] = []

    def add(self, chunk: Chunk) -> list[Part]:
        """The parts that the chunk brings."""
        self._spelled.add(chunk)
        return self.read()

    def read(self) -> list[Part]:
        """The parts of the text that has been spelled out since the last call."""
        return self._kept(self._reader.feed(self._spelled.take()))

    def finish(self) -> list[Part]:
        """The rest, when the text has ended."""
        return self._kept(self._reader.finish())

    def _kept(self, parts: list[Part]) -> list[Part]:
        self._parts += parts
        return parts

    @property
    def answer(self) -> Part:
        """The answer so far."""
        return joined(self._parts)


class CompletionAnswer:
    """A stream that becomes a Completion, or the parts of one. model: the name that the dicts carry; None: the path.
    ended: called with the tokens of the text."""

    def __init__(
        self,
        local_model: _core.Model,
        stream: Stream,
        prompt: str,
        n_prompt: int,
        model: str | None,
        ended: Callable[[Sequence[int]], None],
    ) -> None:
        import uuid

        self._model, self._stream, self._prompt, self._n_prompt = local_model, stream, prompt, n_prompt
        self._lists = LogprobLists(local_model, len(prompt))
        self._ended = ended
        self.spelled = Spelled(local_model)
        self.dicts = AnswerDicts(local_model.path if model is None else model, str(uuid.uuid4()))

    def _is_text(self, token: int | None) -> bool:
        return token is not None and not self._model.is_end(token)

    def completion(
        self, *, echo: bool = False, scored: tuple[int, Sequence[TokenLogprobs]] | None = None
    ) -> Completion:
        """The text, when it has ended. echo: behind its prompt. scored: the prompt's first token, and the others.

        Raises DuoError.
        """
        head = None
        if scored is not None:
            self._lists = LogprobLists(self._model)
            head = self._lists.of_prompt(*scored)
        with self._stream as s:
            for chunk in s:
                self.spelled.add(chunk)
            r = s.result
        self._ended(r.tokens)
        logprobs = self._lists.of([t for t in r.logprobs if self._is_text(t.token)]) if s.with_logprobs else None
        if head is not None and logprobs is not None:
            logprobs = joined_lists(head, logprobs)
        choice = text_choice(0, self._prompt * echo + r.text, finish_reason(r.finish_reason), logprobs)
        return self.dicts.completion([choice], usage(self._n_prompt, sum(map(self._is_text, r.tokens))))

    def pieces(self) -> Iterator[tuple[str, Logprobs | None, str | None]]:
        """The text as it comes, with its log-probabilities; the last piece is the finish_reason alone. Raises
        DuoError."""
        with self._stream as s:
            for chunk in s:
                self.spelled.add(chunk)
                logprobs = None
                if chunk.logprobs is not None and self._is_text(chunk.token):
                    logprobs = self._lists.of([chunk.logprobs])
                if chunk.text or logprobs is not None:
                    yield chunk.text, logprobs, None
            yield "", None, finish_reason(s.finish_reason)
        self._ended(s.result.tokens)

    def parts(self) -> Iterator[CompletionChunk]:
        """The same as dicts. Raises DuoError."""
        for text, logprobs, finish in self.pieces():
            yield self.dicts.completion_chunk([text_choice(0, text, finish, logprobs)])
