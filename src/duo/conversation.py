"""A conversation: its messages, and the tokens of them that the models have read."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from duo.chat.chat_template import ChatTemplate, check_messages
from duo.chat.pictures import Pictures, part_of
from duo.chat.reading import AnswerReader, Part
from duo.compat.llama_cpp.answer import Reading, Spelled
from duo.errors import DuoError
from duo.generation.pictures import SeenTokens, check_media, file_of, seen_tokens
from duo.generation.result import Result
from duo.support.atomic import write_whole

if TYPE_CHECKING:
    from duo.generation.stream import Stream
    from duo.model import Duo


class Conversation:
    """Turns of a user and a model. What an answer was read and written as stays in both KV caches for the next turn."""

    def __init__(
        self,
        duo: Duo,
        template: ChatTemplate,
        system: str | None = None,
        *,
        variables: Mapping[str, Any] | None = None,
        reasoning: bool = False,
    ) -> None:
        """variables: of the template, as enable_thinking. reasoning: thoughts are no part of an answer's content.

        Raises BadValueError: the template cannot have these variables.
        """
        self.duo, self._template, self._system = duo, template, system
        self._variables, self._reasoning = template.check_variables(variables), reasoning
        self.messages: list[dict[str, Any]] = []
        self._shown: list[bytes] = []  # pictures of the next question
        self._asked: list[bytes] = []  # of the last one
        self._text = ""  # what the models have read and written
        self._tokens: list[int] = []
        self.last: Result | None = None  # the last answer
        self.reset()

    def reset(self) -> None:
        """Forgets all but the system prompt."""
        self.messages = [] if self._system is None else [{"role": "system", "content": self._system}]
        self._shown = []
        self._text, self._tokens = "", []

    def show(self, picture: bytes | str | os.PathLike[str]) -> None:
        """The next question is about this picture, or sound: a file's bytes, or its path. Raises BadValueError."""
        data = file_of(picture)
        check_media([data])
        self._shown.append(data)

    def ask(self, question: str, **options: Any) -> Stream:
        """Starts the answer; hand its result to `answered`. Raises DuoError, and the question is forgotten then."""
        parts = [part_of(data) for data in self._shown]
        content = [*parts, {"type": "text", "text": question}] if parts else question
        self.messages.append({"role": "user", "content": content})
        pictures = Pictures()
        try:
            text = self._template.render(pictures.taken_out_of(self.messages), **self._variables)
            tokens: list[int] = self._seen(text, pictures) if pictures.files else self.tokens_of(text)
            stream = self.duo.stream(tokens, **options)
        except BaseException:
            self.messages.pop()
            raise
        self._asked, self._shown = self._shown, []
        self._text, self._tokens = text, tokens
        return stream

    def take_back(self) -> None:
        """The question that has no answer is forgotten, and its pictures are for the next one."""
        self.messages.pop()
        self._shown = self._asked
        self._text, self._tokens = "", []

    def _seen(self, text: str, pictures: Pictures) -> SeenTokens:
        return seen_tokens(self.duo.local_model, pictures.between(text), add_special=self._template.add_special)

    def reading(self) -> Reading | None:
        """A reader that separates thoughts from the answer while it comes; None: they are not separated."""
        if not self._reasoning:
            return None
        return Reading(Spelled(self.duo.local_model), AnswerReader(self._text, reasoning=True))

    def answered(self, r: Result, part: Part | None = None) -> None:
        """Adds the answer, complete or as far as it came. part: what a reading made of it."""
        message = {"role": "assistant", "content": r.text if part is None else part.content}
        if part is not None and part.reasoning:
            message["reasoning_content"] = part.reasoning
        self.messages.append(message)
        self.last = r
        tokens = list(r.tokens)
        if tokens and self.duo.local_model.is_end(tokens[-1]):
            tokens.pop()
        model = self.duo.local_model
        text = b"".join(map(model.written, tokens)).decode("utf-8", "replace")
        if text == r.text and all(t < model.n_vocab for t in tokens):
            self._text, self._tokens = self._text + r.text, self._tokens + tokens
        else:  # a stop string was cut off, or only the target elsewhere has a token
            self._text, self._tokens = "", []

    @property
    def is_full(self) -> bool:
        """The last answer ended because the context did."""
        r = self.last
        if r is None or r.timings.get("context_shift_n"):
            return False
        return r.finish_reason == "length" and r.prompt_tokens + len(r.tokens) >= self.duo.n_ctx()

    def tokens_of(self, text: str) -> list[int]:
        """Ids of a rendered conversation. An answer keeps the tokens it was written as, which its text need not give:
        it is cached as those."""
        duo = self.duo
        if self._text and text.startswith(self._text):
            rest = duo.tokenize(text[len(self._text) :], add_bos=False, special=True)
            # Only a control token surely begins a token of its own.
            if rest and not duo.local_model.piece(rest[0]) and duo.local_model.piece(rest[0], True):
                return self._tokens + rest
        return duo.tokenize(text, add_bos=self._template.add_special, special=True)

    def save(self, path: Path) -> None:
        """Writes the messages as JSON. Raises DuoError."""
        try:
            data = (json.dumps(self.messages, ensure_ascii=False, indent=1) + "\n").encode("utf-8")
        except UnicodeEncodeError:
            raise DuoError("a message is not valid Unicode and cannot be written; begin anew without it") from None
        try:
            write_whole(path, data)
        except OSError as e:
            raise DuoError(f"{path} cannot be written ({e.strerror}); choose another file") from None

    def load(self, path: Path) -> None:
        """Takes a file's messages in place of these. Raises DuoError, and nothing is changed then."""
        try:
            content = json.loads(path.read_bytes().decode("utf-8-sig"))
        except OSError as e:
            raise DuoError(f"{path} cannot be read ({e.strerror}); check the path") from None
        except (ValueError, RecursionError) as e:
            raise DuoError(f"{path} is not a conversation in JSON ({e}); /save writes such files") from None
        try:
            raw: Any = content.get("messages") if isinstance(content, dict) else content
            checked = check_messages(Pictures().taken_out_of(raw))
        except DuoError as e:
            raise DuoError(f"{path}: {e}") from None
        # Pictures stay in the messages.
        messages = [m if isinstance(m.get("content"), list) else c for m, c in zip(raw, checked, strict=True)]
        self.messages, self._text, self._tokens = messages, "", []
