"""What a loaded pair can be asked for: texts, and tokens of its vocabulary."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, closing
from typing import TYPE_CHECKING, Any, Protocol

from typing_extensions import Unpack

from duo import _core
from duo.errors import BadValueError
from duo.generation.begin import start
from duo.generation.errand import turn
from duo.generation.job import Prompt, check_text
from duo.generation.result import Chunk, Result
from duo.generation.session import EngineSession
from duo.generation.stream import Stream
from duo.generation.timings import Timings
from duo.options.generate import GenerateOptions
from duo.options.signature import keywords

if TYPE_CHECKING:
    from duo.generation.state import State


def text_defaults(d: Texts, options: Mapping[str, Any]) -> dict[str, Any]:
    """The defaults of a text with these options. N-grams that nobody asked for guess only where they can change no
    text: with the rule `noise`."""
    lossy = {**d.defaults, **options}.get("accept", "noise") != "noise"
    return {k: v for k, v in d.defaults.items() if not (k == "spec_type" and d.ngrams_unasked and lossy)}


class LoadedModels(Protocol):
    """What a `Duo` has loaded (duo.loaded_pair)."""

    session: EngineSession
    embedder: _core.Embedder | None

    @property
    def elsewhere(self) -> str: ...


class Texts:
    """`Duo` inherits this. It sets `_pair` and `defaults` (options of every text)."""

    _pair: LoadedModels
    ngrams_unasked = False  # duo itself chose the n-grams in `defaults`
    defaults: GenerateOptions

    @property
    def session(self) -> EngineSession:
        """The engine and the turns of its texts."""
        return self._pair.session

    @property
    def elsewhere(self) -> str:
        """The host of the model that is on another machine; empty: none is."""
        return self._pair.elsewhere

    # ---- texts

    @keywords(GenerateOptions)
    def stream(self, prompt: Prompt, **options: Unpack[GenerateOptions]) -> Stream:
        """Starts a text and returns its chunks as they come. If you close or drop the stream, its slot is free.

        At temperature 0 the samplers have no effect, but `logit_bias`, penalties and DRY have.

        Args:
            prompt: Text, or token ids.
            **options: Keywords of a text.

        Raises:
            TypeError: A keyword is unknown.
            BadValueError: A value is wrong, the prompt is empty, or a token id is not in the vocabulary.
            ContextFullError: The prompt leaves no room in the context.
            BusyError: Streams that this thread has open take all slots.
            DuoError: The text failed later, while it ran. `result` holds the text so far.
        """
        return start(self.session, prompt, {**text_defaults(self, options), **options}, "stream")

    @keywords(GenerateOptions)
    def generate(self, prompt: Prompt, **options: Unpack[GenerateOptions]) -> Result:
        """Writes a text and returns it when it has ended. Arguments and errors are those of `stream`."""
        with start(self.session, prompt, {**text_defaults(self, options), **options}, "generate") as s:
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
        """Writes a text for each prompt, `n_parallel` at a time, and returns them in the order of the prompts.

        Errors are those of `stream`. The first one ends the call when the texts that are being written have ended.
        Ctrl-C, or an exception of `progress`, stops them. Then only `progress` has seen the texts that were finished.

        Args:
            prompts: Texts, or lists of token ids.
            progress: Is called with a prompt's index and its result when that text has ended.
            **options: Keywords of a text.
        """
        from duo.generation.many import OpenStreams, as_they_end

        streams, o = OpenStreams(self.session.turns), {**text_defaults(self, options), **options}

        def write(prompt: Prompt) -> Result:
            return streams.read(lambda turn: start(self.session, prompt, o, "generate", turn))

        results: dict[int, Result] = {}
        with closing(as_they_end(write, prompts, self.session.turns.n, streams.close)) as texts:
            for i, result in texts:
                results[i] = result
                if progress is not None:
                    progress(i, result)
        return [results[i] for i in sorted(results)]

    @keywords(GenerateOptions)
    async def astream(self, prompt: Prompt, **options: Unpack[GenerateOptions]) -> AsyncIterator[Chunk]:
        """`stream` for asyncio: the event loop runs on while the models work. Cancel the task to stop the text.

        Arguments and errors are those of `stream`.
        """
        from duo.generation.stream_async import chunks_async

        # A caller that closes this generator closes the text at once. Otherwise the event loop would close it later.
        async with aclosing(chunks_async(self.session, prompt, {**text_defaults(self, options), **options})) as chunks:
            async for chunk in chunks:
                yield chunk

    @keywords(GenerateOptions)
    async def agenerate(self, prompt: Prompt, **options: Unpack[GenerateOptions]) -> Result:
        """`generate` for asyncio. Cancel the task to stop the text. Arguments and errors are those of `stream`."""
        from duo.generation.stream_async import result_async

        return await result_async(self.session, prompt, {**text_defaults(self, options), **options})

    # ---- tokens

    def tokenize(self, text: str | bytes, add_bos: bool = True, special: bool = False) -> list[int]:
        """Converts text to token ids of the target's vocabulary, as llama_cpp.Llama.tokenize does.

        Bytes that are not UTF-8 become U+FFFD.

        Args:
            text: Text, or its UTF-8 bytes.
            add_bos: Begin with the BOS token, if the model wants one.
            special: `<|im_end|>` in the text means that token, as it does in prompts. Leave it out for text that others
                wrote: they could end a turn and begin another one.

        Raises:
            BadValueError: A `str` is not valid Unicode, or contains a NUL character.
        """
        if isinstance(text, str):
            check_text(text, "the text")
        return self.local_model.tokenize(text, add_bos, special)

    def detokenize(
        self, tokens: Sequence[int], prev_tokens: Sequence[int] | None = None, special: bool = False
    ) -> bytes:
        """Converts token ids to bytes, as llama_cpp.Llama.detokenize does. A space after the BOS token is left out.

        Args:
            tokens: Token ids.
            prev_tokens: Has no effect.
            special: Spell control tokens out; otherwise they are left out.

        Raises:
            BadValueError: An id is not in the vocabulary.
        """
        text = b"".join(self._pieces(tokens, special))
        bos = len(tokens) > 0 and int(tokens[0]) == self.local_model.token_bos
        return text[1:] if bos and text.startswith(b" ") else text

    def decode(self, tokens: Sequence[int], *, special: bool = False) -> str:
        """Converts token ids to text. Bytes that are not a whole character become U+FFFD.

        Args:
            tokens: Token ids.
            special: Spell control tokens out; otherwise they are left out.

        Raises:
            BadValueError: An id is not in the vocabulary.
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
        """Copies what the models' caches hold of the text that ended last. It waits until no text is being written.

        Raises:
            BadValueError: The target is on another machine.
            BusyError: This thread has a stream open.
        """
        from duo.generation import state

        self._needs_target("save_state")
        with turn(self.session):
            return state.state_of(self.session, self.defaults.get("seed", -1))

    def load_state(self, state: State) -> None:
        """Puts a saved state into the caches. What the next prompt has in common with it is not evaluated again.

        It replaces the text that was used least recently, and waits until no text is being written. As in llama_cpp,
        the state's seed becomes the default of the texts that follow. Load only states that you trust: a checksum finds
        damage, but not forgery.

        Args:
            state: What `save_state` returned, in this process or in another one.

        Raises:
            BadValueError: The state is damaged, or belongs to another model, build or setting; or the target is on
                another machine.
            BusyError: This thread has a stream open.
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
    def lora_scales(self) -> list[float]:
        """The scales of the target's LoRA adapters, in the order of `lora` and `lora_scaled`.

        What you set holds for all texts that begin later and have no `lora_scales` of their own. Raises BadValueError:
        the number of scales is another one than that of the adapters, or the target is in another process.
        """
        return self.engine.lora_scales

    @lora_scales.setter
    def lora_scales(self, scales: Sequence[float]) -> None:
        self.engine.lora_scales = [float(x) for x in scales]

    @property
    def timings(self) -> Timings:
        """Figures of the text that ended last. Empty: none has ended yet.

        It is for programs that write one text after the other. Where several are written at once, use `Result.timings`
        or `Stream.timings`, which always belong to their own text.
        """
        return self.session.timings

    @property
    def engine(self) -> _core.Engine:
        """The C++ engine. Raises CancelledError: this Duo is closed."""
        return self.session.engine

    @property
    def draft(self) -> _core.Model | None:
        """The loaded draft. None: there is none in this process."""
        return self.engine.draft

    @property
    def local_model(self) -> _core.Model:
        """The model on this machine whose vocabulary is used: the target, or the draft if the target is elsewhere."""
        return self.session.local_model

    @property
    def target(self) -> _core.Model:
        """The loaded target.

        It has `path`, `description`, `devices`, `n_ctx`, `n_vocab`, `n_bytes`, `same_bits` (whether logits are the same
        at every batch width) and `warning` (why duo's CPU kernels are not used).

        Raises:
            BadValueError: The target is on another machine.
        """
        target = self.engine.target
        if target is None:
            raise BadValueError(f"the target is on another machine, {self.elsewhere}; ask it there")
        return target
