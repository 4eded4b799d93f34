"""What a loaded pair can be asked for: texts, and tokens of its vocabulary."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from typing_extensions import Unpack

from duo import _core
from duo.errors import BadValueError
from duo.generation.begin import start
from duo.generation.errand import turn
from duo.generation.job import Prompt, check_text
from duo.generation.result import Chunk, Result, Timings
from duo.generation.session import Session
from duo.generation.stream import Stream
from duo.options.generate import GenerateOptions
from duo.options.signature import keywords

if TYPE_CHECKING:
    from duo.generation.state import State


def own_defaults(d: Texts, options: Mapping[str, Any]) -> dict[str, Any]:
    """The defaults of a text with these options. N-grams that nobody asked for guess only where they can change no
    text: with the rule `noise`."""
    lossy = {**d.defaults, **options}.get("accept", "noise") != "noise"
    return {k: v for k, v in d.defaults.items() if not (k == "spec_type" and d.ngrams_unasked and lossy)}


class Texts:
    """`Duo` inherits this. It sets `session` and `defaults` (options of every text) when it has loaded."""

    session: Session
    ngrams_unasked = False  # duo itself chose the n-grams in `defaults`
    defaults: GenerateOptions
    elsewhere: str  # the host of the model that is on another machine; empty: none is

    # ---- texts

    @keywords(GenerateOptions)
    def stream(self, prompt: Prompt, **options: Unpack[GenerateOptions]) -> Stream:
        """Starts a text and returns its chunks as they come. Abandon or close it and its slot is free.

        prompt: text, or token ids. max_tokens, repeat_last_n and n_draft count tokens; top_p, min_p, typical_p,
        xtc_probability, xtc_threshold and draft_p_min are shares, 0 to 1; logit_bias adds to logits (nats). At
        temperature 0 the filters have no effect; bias, penalties and DRY do.

        Raises TypeError (unknown keyword) and DuoError: BadValueError (a value, an empty prompt, ids out of range),
        BusyError (this thread has a stream open), ContextFullError; here, and not later. A failure while it runs is a
        DuoError whose `.result` holds the text so far.
        """
        return start(self.session, prompt, {**own_defaults(self, options), **options}, "stream")

    @keywords(GenerateOptions)
    def generate(self, prompt: Prompt, **options: Unpack[GenerateOptions]) -> Result:
        """The whole text, when it has ended. Keywords and errors are those of `stream`."""
        with start(self.session, prompt, {**own_defaults(self, options), **options}, "generate") as s:
            for _ in s:
                pass
            return s.result

    @keywords(GenerateOptions)
    def generate_many(
        self,
        prompts: Iterable[Prompt],
        *,
        progress: Callable[[int, Result], None] | None = None,
        **options: Unpack[GenerateOptions],
    ) -> list[Result]:
        """A text for each prompt, in the prompts' order; as many at once as `n_parallel` says.

        progress: called with a prompt's index and its text when that text has ended. Raises as `stream`; the first
        error ends the call when the texts that are being written have ended.
        """
        from duo.generation.many import as_they_end

        found: dict[int, Result] = {}
        for i, result in as_they_end(lambda p: self.generate(p, **options), prompts, self.session.turns.n):
            found[i] = result
            if progress is not None:
                progress(i, result)
        return [found[i] for i in sorted(found)]

    @keywords(GenerateOptions)
    async def astream(self, prompt: Prompt, **options: Unpack[GenerateOptions]) -> AsyncIterator[Chunk]:
        """`stream` for asyncio: the event loop runs on while the models work. Raises as `stream`."""
        from duo.generation.stream_async import chunks_async

        # Who closes this one closes the text: without it the loop would, later.
        async with aclosing(chunks_async(self.session, prompt, {**own_defaults(self, options), **options})) as chunks:
            async for chunk in chunks:
                yield chunk

    @keywords(GenerateOptions)
    async def agenerate(self, prompt: Prompt, **options: Unpack[GenerateOptions]) -> Result:
        """`generate` for asyncio. Raises as `stream`."""
        from duo.generation.stream_async import result_async

        return await result_async(self.session, prompt, {**own_defaults(self, options), **options})

    # ---- tokens

    def tokenize(self, text: str | bytes, add_bos: bool = True, special: bool = False) -> list[int]:
        """Token ids of the target's vocabulary, as llama_cpp.Llama.tokenize.

        add_bos: with the BOS token where the model wants one. special: "<|im_end|>" in the text is that token, as it is
        in prompts. Leave it out for text that others wrote: they could end a turn and begin another one. Bytes that are
        no UTF-8 are U+FFFD. Raises BadValueError: a `str` is not Unicode, or holds a NUL character.
        """
        if isinstance(text, str):
            check_text(text, "the text")
        return self.local_model.tokenize(text, add_bos, special)

    def detokenize(
        self, tokens: Sequence[int], prev_tokens: Sequence[int] | None = None, special: bool = False
    ) -> bytes:
        """Bytes of token ids, as llama_cpp.Llama.detokenize; see `decode` for text.

        special: control tokens as text, not as nothing. prev_tokens changes nothing. A space right behind the BOS token
        is left out. Raises BadValueError for an unknown id.
        """
        found = b"".join(self._pieces(tokens, special))
        bos = len(tokens) > 0 and int(tokens[0]) == self.local_model.token_bos
        return found[1:] if bos and found.startswith(b" ") else found

    def decode(self, tokens: Sequence[int], *, special: bool = False) -> str:
        """Text of token ids; bytes that are no whole character become U+FFFD. Raises BadValueError for an unknown id.

        special: control tokens as text, not as nothing.
        """
        return b"".join(self._pieces(tokens, special)).decode("utf-8", "replace")

    def _pieces(self, tokens: Sequence[int], special: bool) -> list[bytes]:
        n_vocab = self.local_model.n_vocab
        for i, t in enumerate(tokens):
            if not 0 <= t < n_vocab:
                raise BadValueError(f"token {i} is {t}, outside the vocabulary (0 to {n_vocab - 1})")
        return [self.local_model.piece(int(t), special) for t in tokens]

    # ---- caches

    def save_state(self) -> State:
        """What the models' caches hold of the last text; `load_state` takes it, in this process or in another one.

        Waits for the running text. Raises BadValueError (the target is on another machine), BusyError and DuoError.
        """
        from duo.generation import state

        self._needs_target("save_state")
        with turn(self.session):
            return state.taken(self.session, self.defaults.get("seed", -1))

    def load_state(self, state: State) -> None:
        """Puts a saved state into the caches: what the next prompt has in common with it is not evaluated again.

        Only for states that you trust. Raises BadValueError: it is damaged, or belongs to another model, build or
        setting; the target is on another machine. BusyError and DuoError as `save_state`. As in llama_cpp, the
        state's seed becomes the default of the texts that follow.
        """
        from duo.generation.state import BadStateError, State, restore

        self._needs_target("load_state")
        if not isinstance(state, State):
            raise BadValueError(f"load_state got {type(state).__name__}; give what save_state of a Duo has returned")
        with turn(self.session):
            try:
                restore(self.session, [c for c in (state.target, state.draft) if c is not None])
            except BadStateError as e:
                raise BadValueError(f"this state {e}; evaluate the text again") from None
        self.defaults["seed"] = state.seed

    def _needs_target(self, function: str) -> None:
        if self.engine.target is None:
            raise BadValueError(
                f"{function} needs the target in this process, and it is on another machine, {self.elsewhere}"
            )

    # ---- models

    @property
    def timings(self) -> Timings:
        """Figures of the text that ended last; empty before the first one has ended.

        For programs that write one text after the other. Where several are written at once, this may be another one's:
        use `Result.timings` or `Stream.timings`, which are always the text's own.
        """
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

        Raises BadValueError if it is on another machine.
        """
        target = self.engine.target
        if target is None:
            raise BadValueError(f"the target is on another machine, {self.elsewhere}; ask it there")
        return target
