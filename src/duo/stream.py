"""One text on its way out: pulled from the engine chunk by chunk, in a thread or in asyncio."""

from __future__ import annotations

import asyncio
import operator
import secrets
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any

from typing_extensions import Self

from duo import _core
from duo.config import GenerateOptions, generate_options
from duo.errors import DuoError
from duo.result import Chunk, Result, TokenLogprobs, timings

if TYPE_CHECKING:
    from duo.engine import Duo, Prompt

# A pull waits this long at a time, so that Ctrl-C and close() from elsewhere are heard.
SLICE_US = 50_000


def prompt_tokens(duo: Duo, prompt: Prompt) -> list[int]:
    """Ids of a prompt given as text or as ids. Raises DuoError: empty, NUL, not Unicode, no integers."""
    if isinstance(prompt, str):
        if not prompt:
            raise DuoError("the prompt is empty; give some text")
        if "\0" in prompt:
            raise DuoError(f"the prompt holds a NUL character at position {prompt.index(chr(0))}; remove it")
        try:
            prompt.encode("utf-8")
        except UnicodeEncodeError as e:
            raise DuoError(f"the prompt is not valid Unicode (position {e.start}); decode it as UTF-8") from None
        return duo.tokenize(prompt)
    if isinstance(prompt, bytes | bytearray):
        raise TypeError("the prompt is bytes; decode it to str first")
    ids = []
    for i, t in enumerate(prompt):
        try:
            if isinstance(t, bool):
                raise TypeError
            ids.append(operator.index(t))
        except TypeError:
            raise DuoError(f"token {i} of the prompt is {t!r}; give integers") from None
    n_vocab = duo.target.n_vocab
    for i, t in enumerate(ids):
        if not 0 <= t < n_vocab:
            raise DuoError(f"token {i} of the prompt is {t}, outside the vocabulary (0 to {n_vocab - 1})")
    if not ids:
        raise DuoError("the prompt is empty; give at least one token")
    return ids


def _sampling(o: GenerateOptions, seed: int) -> _core.Sampling:
    s = _core.Sampling()
    s.temp, s.top_k, s.top_p, s.min_p = o["temperature"], o["top_k"], o["top_p"], o["min_p"]
    s.repeat_penalty, s.repeat_last_n = o["repeat_penalty"], o["repeat_last_n"]
    s.presence_penalty, s.frequency_penalty = o["presence_penalty"], o["frequency_penalty"]
    s.ignore_eos, s.seed = o["ignore_eos"], seed
    s.logit_bias = list(o["logit_bias"].items())
    return s


class Stream(Iterator[Chunk]):
    """Chunks of one text. `result` and `timings` are complete when it is exhausted; close it to stop early."""

    def __init__(self, duo: Duo, seed: int, n_prompt: int) -> None:
        self._duo = duo
        self._open = True
        self._stopping = False
        self._text: list[str] = []
        self._tokens: list[int] = []
        self._from_draft: list[bool] = []
        self._logprobs: list[TokenLogprobs] = []
        self._n_prompt = n_prompt
        self.seed = seed  # the one in use, also where -1 asked for any
        self.finish_reason = ""
        self.warning = ""  # why the text went on without the draft, if it did
        self.timings: dict[str, Any] = {}
        self.on_close: Callable[[], None] | None = None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Chunk:
        try:
            while (chunk := self.poll()) is None:
                pass
            return chunk
        except BaseException:
            self.close()
            raise

    def poll(self) -> Chunk | None:
        """The next chunk, or None if none came within a twentieth of a second. Raises StopIteration after the last."""
        if not self._open:
            raise StopIteration
        with self._duo._pull:
            if self._stopping:
                raise StopIteration
            c = self._duo.engine.next(SLICE_US)
            if c is not None and self._duo._trace is not None and len(self._tokens) % 64 == 0:
                self._duo.write_trace()
        if c is None:
            return None
        if c.text:
            self._text.append(c.text)
        if not c.finish:
            logprobs = TokenLogprobs(c.token, c.logprob, tuple(c.top)) if self._with_logprobs else None
            if logprobs is not None:
                self._logprobs.append(logprobs)
            self._tokens.append(c.token)
            self._from_draft.append(c.from_draft)
            return Chunk(c.text, c.token, c.from_draft, None, logprobs)
        why = self._finish(c.finish)
        if c.finish == "error":
            raise DuoError(why, self.result)
        return Chunk(c.text, finish_reason=c.finish)

    _with_logprobs = False

    @property
    def result(self) -> Result:
        """What there is so far; all of it once the stream has ended."""
        return Result(
            text="".join(self._text),
            tokens=tuple(self._tokens),
            from_draft=tuple(self._from_draft),
            finish_reason=self.finish_reason,
            timings=self.timings,
            prompt_tokens=self._n_prompt,
            logprobs=tuple(self._logprobs),
            seed=self.seed,
            warning=self.warning,
        )

    def close(self) -> None:
        """Stops the text; its slot is free when this returns. Safe to call twice, and from another thread."""
        self._stopping = True
        with self._duo._pull:
            if self._open:
                engine = self._duo._engine
                if engine is not None:
                    engine.cancel()
                self._finish("cancelled")
        if self.on_close is not None:
            on_close, self.on_close = self.on_close, None
            on_close()

    def _finish(self, reason: str) -> str:
        engine = self._duo._engine
        why = ""
        if engine is not None:
            stats = engine.stats()
            self.timings = timings(stats)
            self._duo.timings = self.timings
            self.warning, why = stats["warning"], stats["error"]
            self._duo.write_trace()
        self.finish_reason = reason
        self._open = False
        self._duo._owner = None
        self._duo._turn.release()
        return why

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _t: type[BaseException] | None, _e: BaseException | None, _tb: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_open", False):
            self.close()


def start(duo: Duo, prompt: Prompt, given: dict[str, Any], *, owner: int | None) -> Stream:
    """Waits for its turn and begins the text. owner: the thread that will pull, None for an asyncio task."""
    o = generate_options(given)
    tokens = prompt_tokens(duo, prompt)
    seed = o["seed"] if o["seed"] >= 0 else secrets.randbits(63)
    stop = [o["stop"]] if isinstance(o["stop"], str) else list(o["stop"])
    if any(not s for s in stop):
        raise DuoError("a stop string (-r) is empty; leave it out")
    if owner is not None and duo._owner == owner:
        raise DuoError("this thread has another stream open; finish or close it before starting the next")
    duo._turn.acquire()
    try:
        with duo._pull:
            duo.engine.begin(
                prompt=tokens,
                n_predict=o["max_tokens"],
                sampling=_sampling(o, seed),
                mode=o["mode"],
                n_draft=_core.N_DRAFT_AUTO if o["n_draft"] == "auto" else o["n_draft"],
                n_draft_min=o["n_draft_min"],
                p_min=o["draft_p_min"],
                stop=stop,
                n_logprobs=-1 if o["logprobs"] is None else o["logprobs"],
            )
        duo._owner = owner
        s = Stream(duo, seed, len(tokens))
        s._with_logprobs = o["logprobs"] is not None
        return s
    except _core.EngineError as e:
        duo._turn.release()
        raise DuoError(str(e)) from None
    except BaseException:
        duo._turn.release()
        raise


async def _in_thread(stop: threading.Event, call: Callable[[], Any]) -> Any:
    """Runs a blocking call in a thread; a cancelled task waits for it to come back, so that nothing is left running."""
    work = asyncio.ensure_future(asyncio.to_thread(call))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait([work])
        raise


async def _start_async(duo: Duo, prompt: Prompt, given: dict[str, Any]) -> Stream:
    # Waiting for the turn in the loop, not in a pool thread: a hundred waiting tasks must not fill the pool.
    generate_options(given)
    while duo._turn.locked():
        await asyncio.sleep(0.005)
    stop = threading.Event()
    s: list[Stream] = []
    try:
        await _in_thread(stop, lambda: s.append(start(duo, prompt, given, owner=None)))
    except asyncio.CancelledError:
        if s:
            s[0].close()
        raise
    return s[0]


async def chunks_async(duo: Duo, prompt: Prompt, given: dict[str, Any]) -> AsyncIterator[Chunk]:
    """Chunks of one text for an event loop."""
    stop = threading.Event()

    def pull() -> Chunk | None:
        try:
            while not stop.is_set():
                chunk = s.poll()
                if chunk is not None:
                    return chunk
        except StopIteration:
            pass
        return None

    s = await _start_async(duo, prompt, given)
    try:
        while (chunk := await _in_thread(stop, pull)) is not None:
            yield chunk
    finally:
        s.close()


async def result_async(duo: Duo, prompt: Prompt, given: dict[str, Any]) -> Result:
    """The whole text for an event loop."""
    s = await _start_async(duo, prompt, given)
    stop = threading.Event()

    def pull_all() -> None:
        try:
            while not stop.is_set():
                s.poll()
        except StopIteration:
            pass

    try:
        await _in_thread(stop, pull_all)
        return s.result
    finally:
        s.close()
