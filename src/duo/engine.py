"""`Duo`: a target, a draft, and the texts they write."""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from typing_extensions import Self, Unpack

from duo import _core, guard, llama_cpp_names, profiles
from duo.check import check_keywords, engine_options, generate_options
from duo.completion import Completions
from duo.config import ENGINE_OPTIONS, GENERATE_OPTIONS, EngineOptions, GenerateOptions
from duo.errors import DuoError
from duo.files import PathLike, pair, path
from duo.job import makes_guesses
from duo.llama_cpp_members import text_of
from duo.loading import Loading
from duo.placement import place
from duo.remote import attach, host_of, in_child, n_ctx_remote
from duo.result import Chunk, Result
from duo.stream import Stream, start
from duo.trace import TraceWriter

if TYPE_CHECKING:
    import numpy as np

    from duo.remote.client import Client
    from duo.remote.session import ClientSettings

    Prompt = str | Sequence[int] | np.ndarray[Any, Any]

_alive: weakref.WeakSet[Duo] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """A daemon thread that came back from C++ while the interpreter goes would abort the process."""
    for d in list(_alive):
        d._pull.acquire()  # for good: such threads wait here until the process is gone
        with suppress(DuoError):
            d.close()


class Duo(Completions, Loading):
    """A target model and, if given, a draft model, loaded and ready.

    `Duo(model, draft=None, *, ...)`: paths of two GGUF files; without `model` the demo pair that comes with the
    package; without `draft` plain decoding. One of the two may be on another machine (`draft_host`, `verify_host`).
    Keywords: `duo.config.EngineOptions` (llama_cpp's names, `_draft` twins),
    and as defaults for every text `duo.config.GenerateOptions`. `trace`: a file for the Chrome trace of all that runs.
    `progress`: called while a model loads, with its path and the share that is read. `chat_template`: jinja2 or a name
    (chatml, llama3, ...) in place of the target's own. llama_cpp.Llama's arguments are understood (`model_path`, ...).

    One text at a time: calls from several threads queue up. Close it, or use `with`: then both models' memory and
    threads are gone.

    Raises DuoError (bad file, bad value, vocabularies that differ, no memory) and TypeError (unknown keyword).
    """

    def __init__(
        self,
        model: PathLike | None = None,
        draft: PathLike | None = None,
        *,
        trace: PathLike | None = None,
        verbose: bool = False,
        log_file: PathLike | None = None,
        progress: Callable[[str, float], None] | None = None,
        _delay: tuple[int, int] = (0, 0),  # tests: (at most so many microseconds late, seed)
        _always: bool = False,  # tests: speculate whether it pays or not
        **options: Any,
    ) -> None:
        model, options = llama_cpp_names.translated(model, options)
        self._chat_template = options.pop("chat_template", None)
        check_keywords("Duo", options, ENGINE_OPTIONS, GENERATE_OPTIONS)
        self.options = engine_options({k: v for k, v in options.items() if k in ENGINE_OPTIONS})
        self._defaults = {k: v for k, v in options.items() if k in GENERATE_OPTIONS}
        defaults = generate_options(self._defaults)
        self._client: Client | None = None
        model, draft, o, self._child = in_child(model, draft, self.options)
        self._host: ClientSettings | None = host_of(o, self._child)  # None: both models are here
        model, draft = pair(model, draft, o)
        if self._child is not None:
            self._child.start()
        placed, self.plan = place(
            o,
            None if model is None else path(model, "target"),
            None if draft is None else path(draft, "draft"),
            n_ctx_remote=n_ctx_remote(self._host),
            drafted=makes_guesses(defaults, draft is not None or o["draft_host"] is not None),
        )
        placed.tracing = trace is not None
        placed.delay_us, placed.delay_seed = _delay
        self._placed, self._always = placed, _always
        self.timings: dict[str, Any] = {}  # of the last text; llama-server's names, see duo.result.timings
        self._turn = threading.Lock()  # held while a text is generated: calls queue up on it
        # Thread (and asyncio task) that pulls the text: neither can wait for itself.
        self._owner: tuple[int, object] | None = None
        self._current: weakref.ref[Stream] | None = None  # the text that runs, or the last one
        # The engine is used by one thread at a time. Reentrant: the garbage collector may close a stream at any point.
        self._pull = threading.RLock()
        self._trace: TraceWriter | None = None
        self._trace_path = trace
        self._engine: _core.Engine | None = None
        self.profile_key, self._closing = "", False  # what this pair teaches is kept under the key, if it has one
        if trace is not None:
            names = [None if p is None else Path(os.fsdecode(p)).name for p in (model, draft)]
            if self._host is not None:
                names[self._host.role == "draft"] = self._host.where
            try:
                self._trace = TraceWriter(Path(os.fsdecode(trace)), target=names[0] or "", draft=names[1])
            except (OSError, ValueError) as e:
                raise self._trace_error(e) from None
        try:
            _core.log_to(verbose, b"" if log_file is None else os.fsencode(log_file))
            self._engine = _core.Engine(placed, progress)
            if self._host is not None:
                self._client = attach(self._host, self._engine)
        except MemoryError:
            raise DuoError("there is not enough memory for these models; lower -c or choose smaller files") from None
        finally:
            ready = self._engine is not None and (self._host is None or self._client is not None)
            if not ready and self._trace is not None:
                self._trace.close()
            if not ready and self._engine is not None:
                self._engine.close()
                self._engine = None
            if not ready and self._child is not None:
                self._child.close()
        guard.tell()  # the program has said it before
        _alive.add(self)
        if self._host is None and placed.delay_us == 0:  # a warm start, with what earlier runs learned
            self.profile_key = profiles.restore(self.engine, placed)

    # ---- texts

    def stream(self, prompt: Prompt, **options: Unpack[GenerateOptions]) -> Stream:
        """Starts a text and returns its chunks as they come. Abandon or close it and its slot is free.

        Raises DuoError (empty or too long prompt, ids out of range, bad value), here and not later; TypeError (unknown
        keyword). A failure while it runs is a DuoError whose `.result` holds the text so far.
        """
        return start(self, prompt, {**self._defaults, **options}, "stream")

    def generate(self, prompt: Prompt, **options: Unpack[GenerateOptions]) -> Result:
        """The whole text. Raises as `stream`."""
        with start(self, prompt, {**self._defaults, **options}, "generate") as s:
            for _ in s:
                pass
            return s.result

    async def astream(self, prompt: Prompt, **options: Unpack[GenerateOptions]) -> AsyncIterator[Chunk]:
        """`stream` for asyncio: the event loop runs on while the models work."""
        from duo.stream_async import chunks_async

        async for chunk in chunks_async(self, prompt, {**self._defaults, **options}):
            yield chunk

    async def agenerate(self, prompt: Prompt, **options: Unpack[GenerateOptions]) -> Result:
        """`generate` for asyncio."""
        from duo.stream_async import result_async

        return await result_async(self, prompt, {**self._defaults, **options})

    # ---- tokens

    def tokenize(self, text: str | bytes, *, add_special: bool = True, parse_special: bool = True) -> list[int]:
        """Token ids of the target's vocabulary; add_special: with the BOS token where the model wants one."""
        return self.here.tokenize(text_of(text), add_special, parse_special)

    def detokenize(self, tokens: Sequence[int], *, special: bool = False) -> str:
        """Text of token ids; bytes that are no whole character become U+FFFD. Raises DuoError for an unknown id."""
        n_vocab = self.here.n_vocab
        for i, t in enumerate(tokens):
            if not 0 <= t < n_vocab:
                raise DuoError(f"token {i} is {t}, outside the vocabulary (0 to {n_vocab - 1})")
        return b"".join(self.here.piece(int(t), special) for t in tokens).decode("utf-8", "replace")

    # ---- life

    @property
    def engine(self) -> _core.Engine:
        if self._engine is None:
            raise DuoError("this Duo is closed; make a new one")
        return self._engine

    @property
    def target(self) -> _core.Model:
        """The loaded target: path, description, devices, n_ctx, n_vocab, n_bytes.

        Raises DuoError if it is on another machine.
        """
        target = self.engine.target
        if target is None:
            raise DuoError(f"the target is on another machine, {self._host and self._host.where}; ask it there")
        return target

    @property
    def draft(self) -> _core.Model | None:
        """The loaded draft, or None."""
        return self.engine.draft

    @property
    def here(self) -> _core.Model:
        """The model whose vocabulary texts are read and written with: the target, or the draft if that is elsewhere."""
        here = self.engine.target or self.engine.draft
        assert here is not None
        return here

    @property
    def network(self) -> Client | None:
        """What keeps this Duo in touch with its host; None: both models are here."""
        return self._client

    def write_trace(self) -> None:
        """Passes what the workers have recorded on to the trace file. Raises DuoError if it cannot be written."""
        if self._trace is not None and self._engine is not None:
            from duo.trace import Event

            events = (
                Event(
                    kind=kind, lane=lane, t0_us=t0, t1_us=t1, slot=slot, n_rows=rows,
                    n_accepted=accepted, n_drafted=drafted, hit=hit, depth=depth,
                    n_branch=branch, expected=expected, stance=stance if kind == "verify" else "",
                )
                for kind, lane, t0, t1, slot, rows, accepted, drafted, hit, depth, branch, expected, stance
                in self._engine.take_trace()
            )  # fmt: skip
            try:
                self._trace.add(events)
                if self._client is not None and (figures := self._client.figures_of_text):
                    self._trace.network(_core.now_us(), figures)
            except OSError as e:
                trace, self._trace = self._trace, None
                with suppress(OSError):
                    trace.close()
                raise self._trace_error(e) from None

    def _trace_error(self, e: OSError | ValueError) -> DuoError:
        why = getattr(e, "strerror", None) or str(e)
        return DuoError(
            f"the trace file {os.fsdecode(self._trace_path or '')} cannot be written ({why}); choose another"
        )

    def close(self) -> None:
        """Ends what runs and frees everything. Safe to call twice, and from another thread."""
        self._closing = True  # a reader that pulls chunk after chunk would hardly let go of the lock
        with self._pull:
            if (engine := self._engine) is None:
                return
            engine.cancel()
            try:
                if self._current is not None and (stream := self._current()) is not None:
                    stream.lose()
                self.write_trace()
                if self._trace is not None:
                    self._trace.close()
            except OSError as e:
                raise self._trace_error(e) from None
            finally:
                self._trace = self._engine = None
                with ExitStack() as last:  # all are closed, the engine first, whatever fails
                    for other in (self._child, self._client):
                        if other is not None:
                            last.callback(other.close)
                    last.callback(engine.close)
                    profiles.keep(engine, self.profile_key)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _t: type[BaseException] | None, _e: BaseException | None, _tb: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_engine", None) is not None:
            # Other threads may be the client's own, which `close` waits for.
            here = self._client is None or threading.current_thread() is threading.main_thread()
            self.close() if here else threading.Thread(target=self.close, name="duo-close").start()
        elif (child := getattr(self, "_child", None)) is not None:
            child.close()  # __init__ failed

    def __repr__(self) -> str:
        if self._engine is None:
            return "<Duo, closed>"
        names = [Path(m.path).name for m in (self._engine.target, self._engine.draft) if m is not None]
        names += [] if self._host is None else [self._host.name]
        return f"<Duo {' + '.join(names)}>"


__all__ = ["Duo", "EngineOptions", "GenerateOptions", "Stream"]
