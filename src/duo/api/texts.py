"""What a loaded pair can be asked for: texts, and tokens of its vocabulary."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

from typing_extensions import Unpack

from duo import _core
from duo.errors import DuoError
from duo.options.generate import GenerateOptions
from duo.options.signature import keywords
from duo.text.job import text_of
from duo.text.result import Chunk, Result, Timings
from duo.text.session import Session
from duo.text.stream import Stream, start

if TYPE_CHECKING:
    from duo.text.job import Prompt


class Texts:
    """`Duo` inherits this. It sets `session` and `defaults` (options of every text) when it has loaded."""

    session: Session
    defaults: GenerateOptions
    elsewhere: str  # the host of the model that is on another machine; empty: none is

    # ---- texts

    @keywords(GenerateOptions)
    def stream(self, prompt: Prompt, **options: Unpack[GenerateOptions]) -> Stream:
        """Starts a text and returns its chunks as they come. Abandon or close it and its slot is free.

        prompt: text, or token ids. max_tokens, repeat_last_n and n_draft count tokens; top_p, min_p and draft_p_min are
        shares, 0 to 1; logit_bias adds to logits (nats).

        Raises TypeError (unknown keyword) and DuoError: BadValue (a value, an empty prompt, ids out of range), Busy
        (this thread has a stream open), ContextFull; here, and not later. A failure while it runs is a DuoError whose
        `.result` holds the text so far.
        """
        return start(self.session, prompt, {**self.defaults, **options}, "stream")

    @keywords(GenerateOptions)
    def generate(self, prompt: Prompt, **options: Unpack[GenerateOptions]) -> Result:
        """The whole text, when it has ended. Keywords and errors are those of `stream`."""
        with start(self.session, prompt, {**self.defaults, **options}, "generate") as s:
            for _ in s:
                pass
            return s.result

    @keywords(GenerateOptions)
    async def astream(self, prompt: Prompt, **options: Unpack[GenerateOptions]) -> AsyncIterator[Chunk]:
        """`stream` for asyncio: the event loop runs on while the models work. Raises as `stream`."""
        from duo.text.stream_async import chunks_async

        async for chunk in chunks_async(self.session, prompt, {**self.defaults, **options}):
            yield chunk

    @keywords(GenerateOptions)
    async def agenerate(self, prompt: Prompt, **options: Unpack[GenerateOptions]) -> Result:
        """`generate` for asyncio. Raises as `stream`."""
        from duo.text.stream_async import result_async

        return await result_async(self.session, prompt, {**self.defaults, **options})

    # ---- tokens

    def tokenize(self, text: str | bytes, *, add_special: bool = True, parse_special: bool = True) -> list[int]:
        """Token ids of the target's vocabulary; add_special: with the BOS token where the model wants one."""
        return self.local_model.tokenize(text_of(text), add_special, parse_special)

    def detokenize(self, tokens: Sequence[int], *, special: bool = False) -> str:
        """Text of token ids; bytes that are no whole character become U+FFFD. Raises DuoError for an unknown id."""
        n_vocab = self.local_model.n_vocab
        for i, t in enumerate(tokens):
            if not 0 <= t < n_vocab:
                raise DuoError(f"token {i} is {t}, outside the vocabulary (0 to {n_vocab - 1})")
        return b"".join(self.local_model.piece(int(t), special) for t in tokens).decode("utf-8", "replace")

    # ---- models

    @property
    def timings(self) -> Timings:
        """Figures of the last text; empty before the first one has ended."""
        return self.session.timings

    @property
    def engine(self) -> _core.Engine:
        """Raises DuoError: it is closed."""
        return self.session.engine

    @property
    def draft(self) -> _core.Model | None:
        """The loaded draft, or None."""
        return self.engine.draft

    @property
    def local_model(self) -> _core.Model:
        """The model whose vocabulary texts are read and written with: the target, or the draft if that is elsewhere."""
        return self.session.local_model

    @property
    def target(self) -> _core.Model:
        """The loaded target: path, description, devices, n_ctx, n_vocab, n_bytes.

        Raises DuoError if it is on another machine.
        """
        target = self.engine.target
        if target is None:
            raise DuoError(f"the target is on another machine, {self.elsewhere}; ask it there")
        return target
