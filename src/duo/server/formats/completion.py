"""/v1/completions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from duo.chat.reading import Part
from duo.compat.openai.answers import finish_reason, text_choice
from duo.compat.openai.logprobs import LogprobLists, finite, joined_lists
from duo.compat.openai.shapes import CompletionChoice, Logprobs
from duo.generation.result import Chunk, TokenLogprobs
from duo.server.formats.shape import AnswerFormat, Event
from duo.server.text import ServedText


class CompletionShape(AnswerFormat):
    """OpenAI's completions. echo: the prompt stands before the text."""

    def __init__(self, *args: Any, echo: bool = False, **options: Any) -> None:
        super().__init__(*args, **options)
        self._echo = echo
        self._lists: dict[int, LogprobLists] = {}  # by text

    def _event(self, text: ServedText, content: str, finish: str | None = None, **more: Any) -> Event:
        fresh = self.take_fresh(text)
        return self._part(text, content, self._logprobs(text, fresh), finish, fresh, **more)

    def _part(
        self, text: ServedText, content: str, logprobs: Any = None, finish: str | None = None,
        fresh: Sequence[Chunk] = (), **more: Any,
    ) -> Event:  # fmt: skip
        choice = text_choice(text.index, content, finish, logprobs)
        return "", {**self.dicts.completion_chunk([choice]), **self.per_token_fields(text, fresh), **more}

    # ---- log-probabilities: OpenAI's four lists and, of what is written, llama-server's one

    def _logprobs(self, text: ServedText, chunks: Sequence[Chunk]) -> Any:
        rows = self._rows(text, chunks)
        return self._shown(self._lists_of(text).of(rows), rows) if rows else None

    def _rows(self, text: ServedText, chunks: Sequence[Chunk]) -> list[TokenLogprobs]:
        """Behind a scored prompt the end token has one, too: evaluators count rows by the tokens that they asked for,
        and leave out the last one."""
        keeps_end = text.scores is not None
        return [c.logprobs for c in chunks if c.logprobs is not None and (keeps_end or self.is_written(c))]

    def _lists_of(self, text: ServedText) -> LogprobLists:
        """Those that go on with the text."""
        return self._lists.setdefault(text.index, LogprobLists(self.model, len(text.prompt)))

    def _of_prompt(self, text: ServedText) -> Logprobs | None:
        """The prompt's own tokens, which come first."""
        if text.scores is None:
            return None
        self._lists[text.index] = LogprobLists(self.model)
        return text.scores.shown(self._lists[text.index], text.job)

    def _shown(self, lists: Logprobs, rows: Sequence[TokenLogprobs] = ()) -> Any:
        """rows: of what was written."""
        return {"content": self.logprobs(t for t in rows if not self.model.is_end(t.token)), **finite(lists)}

    def _whole_logprobs(self, text: ServedText) -> Any:
        self._lists.pop(text.index, None)
        head = self._of_prompt(text)
        if head is None:
            return self._logprobs(text, text.chunks)
        rows = self._rows(text, text.chunks)
        return self._shown(joined_lists(head, self._lists_of(text).of(rows)), rows)

    # ---- answers

    def begin(self, text: ServedText) -> Iterator[Event]:
        if self._echo:
            lists = self._of_prompt(text)
            yield self._part(text, text.prompt, None if lists is None else self._shown(lists))

    def progress(self, text: ServedText, figures: Mapping[str, int]) -> Iterator[Event]:
        yield self._part(text, "", prompt_progress=figures)

    def part(self, text: ServedText, part: Part) -> Iterator[Event]:
        yield self._event(text, part.content)

    def end(self, text: ServedText) -> Iterator[Event]:
        is_last = all(t.finish for t in self.texts)
        more: dict[str, Any] = {"usage": self.usage} if is_last and not self.with_usage else {}
        if len(self.texts) == 1:
            more |= self.verbose_fields()
        yield self._event(text, "", finish_reason(text.finish), **more, timings=text.timings)

    def last(self) -> Iterator[Event]:
        if self.with_usage:
            yield "", {**self.dicts.completion([], self.usage)}

    def _choice(self, text: ServedText) -> CompletionChoice:
        content = text.prompt * self._echo + text.text
        return text_choice(text.index, content, finish_reason(text.finish), self._whole_logprobs(text))

    def answer(self) -> dict[str, Any]:
        return {**self.dicts.completion([self._choice(t) for t in self.texts], self.usage), **self.answer_fields()}
