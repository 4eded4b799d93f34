"""A running text, read from the engine chunk by chunk."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from typing_extensions import Self

from duo import _core
from duo.errors import CancelledError, DuoError, error_class
from duo.generation.job import Job, makes_guesses
from duo.generation.result import Chunk, FinishReason, Result, TokenLogprobs
from duo.generation.session import SLICE_US, EngineSession
from duo.generation.timings import Timings, timings
from duo.generation.turns import Turn
from duo.support.home_process import PerProcess

if TYPE_CHECKING:
    from duo.generation.prompt_cache import PromptCache


class Stream(Iterator[Chunk]):
    """The chunks of one text, as an iterator. Use `with`, or call `close`, to stop early.

    Attributes:
        seed: The seed that is used, also if none was given.
        finish_reason: Why the text ended. Empty: it has not ended.
        timings: Figures of this text. Empty: it has not ended.
        warning: The reason, if the text went on without the draft, the trace or the prompt cache.
    """

    def __init__(
        self, session: EngineSession, job: Job, text: _core.Text, turn: Turn, cache: PromptCache | None
    ) -> None:
        self._session, self._core_text, self._turn = session, text, turn
        # One thread at a time reads. Reentrant: the garbage collector may close a stream at any point.
        self._lock = PerProcess(threading.RLock)
        self._stopping = False
        self._lost = False  # whether its Duo was closed before it ended
        self.with_logprobs = job.options["logprobs"] is not None
        self._with_draft = makes_guesses(job.options, session.has_draft)
        self._text: list[str] = []
        self._tokens: list[int] = []
        self._from_draft: list[bool] = []
        self._logprobs: list[TokenLogprobs] = []
        self._n_prompt = len(job.tokens)
        self._hook = job.hook
        self.seed = job.seed  # the actual one, also if -1 was given
        self.finish_reason: FinishReason | Literal[""] = ""
        self._cache = cache
        self.warning = ""  # why the text went on without the draft or the trace
        self.trace_warning = self.network_warning = ""  # the part about the trace, about the connection to a host
        self.timings: Timings = {}
        self.on_close: Callable[[], None] | None = None
        self._open = True  # from here on __del__ ends the text

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
        """The next chunk. None: none came within 50 ms. Raises StopIteration after the last one."""
        self._session.pass_gate()
        if self._open and not self._stopping:
            self._session.home.require()
            chunk = self._pull()
            self._session.pass_gate()
            if self._open or chunk is not None:
                return chunk
        return self._ended()

    def take_ready(self) -> Chunk | None:
        """The next chunk, without waiting. None: it is not there yet. Raises StopIteration after the last one."""
        if not self._open:
            return self._ended()
        self._session.home.require()
        lock = self._lock()
        if not lock.acquire(blocking=False):  # somebody closes it, which takes as long as a pass
            return None
        try:
            if self._open and not self._stopping and (c := self._session.next_chunk(self._core_text, 0)) is not None:
                return self._take(c)
        finally:
            lock.release()
        return None

    def _ended(self) -> NoReturn:
        if self._lost:
            self._lost = False
            raise CancelledError("this Duo was closed while it generated a text", self.result)
        raise StopIteration

    def _pull(self) -> Chunk | None:
        with self._lock():
            if self._stopping or not self._open:
                return None
            c = self._session.next_chunk(self._core_text, SLICE_US)
            return None if c is None else self._take(c)

    def _take(self, c: _core.TextChunk) -> Chunk:
        """Records a chunk. Under the lock, so nobody closes the text between its last chunk and its end."""
        if c.text:
            self._text.append(c.text)
        if c.finish:
            why, code = self._finish(c.finish)
            if c.finish == "error":
                if self._hook is not None:
                    self._hook.raise_error(self.result)
                raise error_class(code)(why, self.result)
            return Chunk(c.text, finish_reason=c.finish, t_us=c.t_us)
        logprobs = TokenLogprobs(c.token, c.logprob, tuple(c.top)) if self.with_logprobs else None
        if logprobs is not None:
            self._logprobs.append(logprobs)
        self._tokens.append(c.token)
        self._from_draft.append(c.from_draft)
        if len(self._tokens) % 64 == 0:
            self._write_trace()
        return Chunk(c.text, c.token, c.from_draft, None, logprobs, c.t_us)

    def _write_trace(self) -> None:
        # A full disk must not end the text.
        try:
            self._session.write_trace()
        except DuoError as e:
            self.trace_warning = str(e)

    @property
    def result(self) -> Result:
        """The text so far; complete when the stream has ended."""
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
        """Stops the text. Its slot is free when this returns. It may be called twice, and from another thread.

        Raises:
            BusyError: The caller is a logits_processor or stopping_criteria of a running text.
        """
        self._session.check_outside()
        self._stopping = True
        with self._lock():
            if self._open and self._session.home.is_this:
                self._session.cancel(self._core_text)
                self._finish("cancelled")
            self._open = False  # in a forked child its end is the parent's
        if self.on_close is not None:
            on_close, self.on_close = self.on_close, None
            on_close()

    @property
    def is_open(self) -> bool:
        """Whether the stream is neither exhausted nor closed."""
        return self._open

    def abort(self) -> None:
        """Its Duo is being closed, and the core has ended it. Its reader gets CancelledError."""
        with self._lock():
            if self._open:
                self._lost = not self._stopping
                self._finish("cancelled")

    @property
    def slot(self) -> int:
        """The number of its slot, from 0. -1: the text waits for one."""
        return self._core_text.place

    @property
    def n_cached(self) -> int:
        """Tokens of the prompt that were in the target's cache; 0 until its first pass has begun."""
        return self._core_text.n_cached

    @property
    def cache_notes(self) -> list[str]:
        """What the prompt cache file was read and written for, as sentences."""
        return [] if self._cache is None else self._cache.notes

    def _keep_prompt(self) -> str:
        """Writes the prompt cache. Returns a warning."""
        if self._cache is None or self._session.closed:
            return ""
        self._cache.after(len(self._tokens), shifted=self.timings.get("context_shift_n", 0) > 0)
        return self._cache.warning

    def _finish(self, reason: FinishReason) -> tuple[str, str]:
        """Why the text failed, and the code of the error; empty if it did not fail."""
        if not self._open:
            return "", ""
        session = self._session
        why = code = ""
        self.finish_reason = reason
        try:  # Ctrl-C may come at any point, and its turn must end
            self._open = False
            if self._hook is not None:
                self._hook.end()
            stats = self._core_text.stats()
            self.timings = timings(stats, with_draft=self._with_draft)
            if session.network is not None:
                # The clocks of two machines cannot tell which work overlapped.
                figures, self.network_warning = session.network.end_text(self._core_text.slot)
                of_network: Any = {"draft_hidden_share": None} | figures
                self.timings.update(of_network)
            session.timings = self.timings
            self._write_trace()
            self.warning = self.network_warning or stats["warning"] or self.trace_warning
            why, code = stats["error"], stats["error_code"]
            if reason != "error" and (failed := self._keep_prompt()):
                self.warning = self.warning or failed
        finally:
            session.remove(self, self._hook)
            session.turns.end(self._turn)
        return why, code

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _t: type[BaseException] | None, _e: BaseException | None, _tb: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        if not getattr(self, "_open", False) or not self._session.home.is_this:
            return
        owner = self._turn.owner
        is_reader = owner is not None and owner[0] == threading.get_ident()
        if not self._session.in_hook and (self._session.network is None or is_reader):
            self.close()
            return
        self._stopping = True
        self._turn.owner = None
        # The garbage collector may run in the thread that the end of the text waits for.
        threading.Thread(target=self.close, name="duo-close").start()
