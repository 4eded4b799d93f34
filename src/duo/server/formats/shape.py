"""What the dialects have in common."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from duo import __version__
from duo.chat.reading import Part
from duo.compat.openai.answers import AnswerDicts, usage
from duo.compat.openai.logprobs import rows_of_tokens
from duo.generation.result import Chunk, TokenLogprobs
from duo.server.errors import ApiError
from duo.server.text import ServedText, TakenChunk

if TYPE_CHECKING:
    from duo import _core
    from duo.compat.openai.shapes import Usage

# The name of the event (empty: it has none), and its data.
Event = tuple[str, Any]
FINGERPRINT = f"duo-{__version__}"


class AnswerFormat:
    """One request's answer, whole or as it comes. Made when its texts begin."""

    done = True  # a stream ends with [DONE]

    def __init__(
        self,
        model: _core.Model,
        name: str,
        texts: Sequence[ServedText],
        *,
        n: int = 1,
        per_token: bool = False,
        with_usage: bool = False,
        verbose: Callable[[ServedText], dict[str, Any]] | None = None,
    ) -> None:
        """name: of the model. n: texts for each prompt. per_token: each part says who wrote its tokens. verbose: tells
        all of a text, if the client wants to know it."""
        self.model, self.texts, self.n = model, texts, n
        self.per_token, self.with_usage, self._verbose = per_token, with_usage, verbose
        self.dicts = AnswerDicts(name, uuid.uuid4().hex, FINGERPRINT)
        self._fresh: dict[int, list[Chunk]] = {}  # tokens that no event has told of, by text

    # ---- what a dialect says

    def begin(self, text: ServedText) -> Iterable[Event]:
        """When the text's first token has come."""
        return ()

    def part(self, text: ServedText, part: Part) -> Iterable[Event]:
        return ()

    def end(self, text: ServedText) -> Iterable[Event]:
        """When the text has ended."""
        return ()

    def progress(self, text: ServedText, figures: Mapping[str, int]) -> Iterable[Event]:
        """While the prompt is read, if the request wants to know."""
        return ()

    def last(self) -> Iterable[Event]:
        """When all have."""
        return ()

    def answer(self) -> Any:
        """The answer, when all texts have ended."""
        raise NotImplementedError

    def failed(self, e: ApiError) -> Event:
        """In the middle of a stream."""
        return "", e.body

    # ---- events of what has come

    def events(self, text: ServedText, taken_chunk: TakenChunk) -> Iterator[Event]:
        """What a chunk that the text has just taken says to the client."""
        if taken_chunk.is_first:
            yield from self.begin(text)
        if taken_chunk.chunk.token is not None:
            self._fresh.setdefault(text.index, []).append(taken_chunk.chunk)
        for part in taken_chunk.parts:
            yield from self.part(text, part)
        if taken_chunk.chunk.finish_reason is not None:
            yield from self.end(text)

    def take_fresh(self, text: ServedText) -> list[Chunk]:
        """The tokens since the last call."""
        return self._fresh.pop(text.index, [])

    def origins(self, chunks: Iterable[Chunk]) -> list[dict[str, Any]]:
        """Who wrote each token. text: what it adds; empty while a character or a stop string is incomplete."""
        return [{"id": c.token, "text": c.text, "from_draft": c.from_draft, "t_us": c.t_us} for c in chunks]

    def per_token_fields(self, text: ServedText, fresh: Sequence[Chunk]) -> dict[str, Any]:
        return {"timings": text.timings, "duo": {"tokens": self.origins(fresh)}} if self.per_token else {}

    def verbose_fields(self) -> dict[str, Any]:
        """llama-server's __verbose, which tells of the first text: the prompt as the model reads it, the settings."""
        return {} if self._verbose is None else {"__verbose": self._verbose(self.texts[0])}

    def answer_fields(self) -> dict[str, Any]:
        """What duo and llama-server tell beside the fields of OpenAI's answer."""
        more = {"duo": {"tokens": [self.origins(t.chunks) for t in self.texts]}} if self.per_token else {}
        return {"timings": self.texts[0].timings, **self.verbose_fields(), **more}

    # ---- figures

    @property
    def n_prompt(self) -> int:
        """Tokens of all prompts; the choices of one prompt share it."""
        return sum(t.n_prompt for t in self.texts[:: self.n])

    @property
    def n_cached(self) -> int:
        return sum((t.result.timings.get("cache_n", 0) if t.result else 0) for t in self.texts[:: self.n])

    @property
    def n_written(self) -> int:
        return sum(t.n_tokens for t in self.texts)

    @property
    def usage(self) -> Usage:
        """OpenAI's."""
        return usage(self.n_prompt, self.n_written, self.n_cached)

    # ---- tokens

    def logprobs(self, tokens: Iterable[TokenLogprobs]) -> list[dict[str, Any]]:
        """As llama-server and OpenAI's chats have them; bytes and all."""
        return rows_of_tokens(self.model, tokens)

    def is_written(self, chunk: Chunk) -> bool:
        """Whether it is a token of the text, and not its end."""
        return chunk.token is not None and not self.model.is_end(chunk.token)

    def stopping_word(self, text: ServedText) -> str:
        """The stop string that ended the text; empty: none did."""
        stops = text.job.stop
        if text.finish != "stop" or not stops or (text.chunks and not self.is_written(text.chunks[-1])):
            return ""
        full_text = b"".join(self.model.written(c.token) for c in text.chunks if c.token is not None).decode(
            "utf-8", "replace"
        )
        rest = full_text[len(text.text) :]
        return next((s for s in sorted(stops, key=len, reverse=True) if rest.startswith(s)), "")

    def is_truncated(self, text: ServedText, n_ctx: int) -> bool:
        """Whether the end of the context ended it, or a part of it was left out."""
        if text.timings.get("context_shift_n"):
            return True
        return text.finish == "length" and text.n_prompt + text.n_tokens >= n_ctx
