"""`Duo`: a target, a draft, and the texts they write."""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

from typing_extensions import Self, Unpack

from duo import _core
from duo.compat.llama_cpp import names as llama_cpp_names
from duo.compat.llama_cpp.chat import Chats
from duo.errors import BadValueError, DoesNotFitError, DuoError
from duo.generation.embeddings import Embeddings, open_embedder, pooling_named
from duo.generation.job import draft_of, makes_guesses
from duo.generation.recent_events import RecentEvents
from duo.generation.session import EngineSession
from duo.generation.stream import Stream
from duo.generation.trace_file import TraceFile
from duo.models.head import check_kind
from duo.models.loading import Loading
from duo.models.paths import PathLike, pair, path, written
from duo.models.projector import see_with
from duo.options.engine import EngineOptions
from duo.options.generate import GenerateOptions
from duo.options.llama_cpp import DuoOptions
from duo.options.model import ModelOptions, with_mtp
from duo.options.signature import keywords
from duo.options.speculation import says_plain
from duo.options.tables import ENGINE_OPTIONS, GENERATE_OPTIONS
from duo.options.validate import check_keywords, engine_options, generate_options
from duo.placement import auto_draft, guard, packed, profiles
from duo.placement.place import place
from duo.remote import attach, host_of, in_child, n_ctx_remote

if TYPE_CHECKING:
    from duo.remote.client.clients import Clients
    from duo.remote.client.connection import ClientSettings

_alive: weakref.WeakSet[Duo] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """A daemon thread that came back from C++ while the interpreter goes would abort the process."""
    for d in list(_alive):
        d.session.hold_readers()
        with suppress(DuoError):
            d.close()


def _without_weights(draft: PathLike | None, options: dict[str, Any], why: str) -> dict[str, Any]:
    """Options for a model that writes nothing, because of the keyword `why`. Raises BadValueError: there is another
    one."""
    for name in ("draft_host", "verify_host", "rpc"):
        if options.get(name) is not None:
            raise BadValueError(f"with {why} nothing is written, so {name} has no use; leave one of them out")
    if draft is not None:
        raise BadValueError(f"with {why} nothing is written, so a draft has no use; leave one of them out")
    return {**options, "cpu_kernels": "stock", "device": "none", "n_gpu_layers": 0}


class Duo(Chats, Embeddings, Loading):
    """A target model and, if you give one, a draft model: loaded and ready to write texts.

    It writes `n_parallel` texts at a time; further calls wait. Its methods may be called from any thread. Use `with`,
    or call `close`, to end its threads and to free its memory.

    Args:
        model: The target's GGUF file. Default: the demo pair that comes with the package.
        draft: The draft's GGUF file. Default: none, so the target decodes alone. `"auto"`: what `duo -m` would use: the
            target's own MTP layers, a draft beside its file, the draft of a known pair, or n-grams.
        trace: A file for the Chrome trace of both workers, or `RecentEvents`, which keeps the last events in memory.
        verbose: Print llama.cpp's log to standard error.
        log_file: Write llama.cpp's log to this file.
        progress: Is called with a path and a share (0 to 1) while a model loads. If it raises an exception, loading
            stops.
        **options: Keywords of a model; llama_cpp.Llama's keywords; and keywords of a text, which become the defaults of
            all texts.

    Attributes:
        options: The values of all keywords of the models.
        defaults: The keywords of texts that were given.
        placement: On which devices the layers are, and the memory that they take. None: no device is used.

    Raises:
        TypeError: A keyword is unknown.
        UnknownModelError: There is no such file, or it is not a model.
        BadValueError: A value is wrong, or the vocabularies do not fit each other.
        DoesNotFitError: There is not enough memory.
        PeerLostError: The other machine cannot be reached, or refuses.
    """

    @keywords(DuoOptions)
    def __init__(
        self,
        model: PathLike | None = None,
        draft: PathLike | None = None,
        *,
        trace: PathLike | RecentEvents | None = None,
        verbose: bool = False,
        log_file: PathLike | None = None,
        progress: Callable[[str, float], None] | None = None,
        **options: Unpack[DuoOptions],
    ) -> None:
        self.verbose = verbose  # as llama_cpp's, for programs that ask
        arguments: dict[str, Any] = {"trace": trace, "verbose": verbose, "log_file": log_file, **options}
        self._made_of = (model, draft, arguments)
        model, remaining = llama_cpp_names.translated(model, dict(options), with_draft=draft is not None)
        auto = draft == auto_draft.AUTO
        if auto:
            draft, remaining = auto_draft.chosen(model, remaining)
        self._choose_chat(remaining)
        remaining.pop("spm_infill", None)  # see the property
        embeds, pooling = bool(remaining.pop("embedding", False)), pooling_named(remaining.pop("pooling_type", -1))
        vocab_only = bool(remaining.pop("vocab_only", False)) or embeds
        of_embedder = {k: v for k, v in remaining.items() if k in ENGINE_OPTIONS}
        if vocab_only:
            remaining = _without_weights(draft, remaining, "embedding" if embeds else "vocab_only")
        check_keywords("Duo", remaining, ENGINE_OPTIONS, GENERATE_OPTIONS)
        log_path = b"" if log_file is None else os.fsencode(written(log_file, "log file"))
        recent = trace if isinstance(trace, RecentEvents) else None
        trace_path = None if trace is None or isinstance(trace, RecentEvents) else written(trace, "trace file")
        self.options = engine_options({k: v for k, v in remaining.items() if k in ENGINE_OPTIONS})
        self.defaults = cast("GenerateOptions", {k: v for k, v in remaining.items() if k in GENERATE_OPTIONS})
        defaults = generate_options({**self.defaults})
        self._client: Clients | None = None
        if (kind := self.options["numa"]) is not None:
            _core.use_numa(kind)
        model, draft, o, self._child = in_child(model, draft, self.options)
        self._host: ClientSettings | None = host_of(o, self._child)  # None: both models are here
        self.elsewhere = "" if self._host is None else self._host.where
        model, draft = pair(model, draft, o)
        wanted = draft_of(defaults)
        if self._host is not None and wanted not in ("", "draft-simple"):
            raise BadValueError(
                f"{wanted} (--spec-type) needs its target in the same process; leave out --draft-host, --verify-host "
                "and --rpc"
            )
        if self._host is not None and self._host.role == "verify" and draft is not None:
            _core.refuse_lone_head(os.fsencode(path(draft, "draft")))  # before anything connects
        own_mtp = wanted == "draft-mtp" and draft is None  # the target's own layers
        draft = None if vocab_only else model if own_mtp else draft
        if draft is not None:
            check_kind(draft, wanted)
        if self._child is not None:
            self._child.start()
        if model is None and o["n_parallel"] == "auto":
            o = {**o, "n_parallel": 1}  # the memory of the target's machine is not known here
        of_target = None if model is None else ModelOptions.of(o, "target", path(model, "target"))
        of_draft = None if draft is None else ModelOptions.of(o, "draft", path(draft, "draft"))
        if wanted == "draft-mtp" and of_target is not None and of_draft is not None:
            of_target, of_draft = with_mtp(of_target, of_draft)
        placed, self.placement = place(
            of_target,
            of_draft,
            n_ctx_remote=n_ctx_remote(self._host, o["n_ctx"]),
            drafted=makes_guesses(defaults, draft is not None or o["draft_host"] is not None),
        )
        placed.remote_draft = o["draft_host"] is not None
        placed.tracing = trace is not None
        if o["cache_ram"] and model is None:
            raise BadValueError("--cache-ram is for the cache of a target in this process; leave it out")
        placed.n_kept_bytes = o["cache_ram"] << 20 if o["cache_ram"] > 0 else o["cache_ram"]
        placed.target.vocab_only = vocab_only
        if not vocab_only:
            placed.projector = see_with(
                o, None if model is None else path(model, "target"), placed.target.n_threads_batch
            )
        learns = self._before_loading(placed)
        self.placed = placed  # where the models were put
        self.profile_key = ""  # what this pair teaches is kept under the key, if it has one
        trace_file, engine = None, None
        if trace_path is not None:
            names = [None if p is None else Path(os.fsdecode(p)).name for p in (model, draft)]
            if self._host is not None:
                names[self._host.role == "draft"] = self.elsewhere
            trace_file = TraceFile(trace_path, names[0] or "", names[1])
        try:
            _core.log_to(bool(verbose), log_path)
            engine = _core.Engine(placed, progress)
            for options_of, loaded in ((placed.target, engine.target), (placed.draft, engine.draft)):
                if loaded is not None:
                    packed.note_checked(options_of, loaded.packed_file)
            if embeds and model is not None:
                self._embedder = open_embedder(path(model, "target"), engine_options(of_embedder), pooling, progress)
            if self._host is not None:
                self._client = attach(self._host, engine)
            self.session = EngineSession(engine, network=self._client, trace=trace_file or recent, placed=placed)
        except MemoryError:
            raise DoesNotFitError(
                "there is not enough memory for these models; lower -c or choose smaller files"
            ) from None
        finally:
            if not self._loaded:
                for made in (trace_file, engine, self._child):
                    if made is not None:
                        made.close()
        guard.tell()  # the program has said it before
        _alive.add(self)
        if self._host is None and learns and not vocab_only:  # a warm start, with what earlier runs learned
            self.profile_key = profiles.restore(self.engine, placed)
        if auto and not says_plain({**defaults}):
            auto_draft.add_ngrams(self, defaults["accept"])

    # ---- life

    def _before_loading(self, placed: _core.EngineOptions) -> bool:
        """A subclass may change how the models are loaded. False: nothing that earlier runs learned holds for it."""
        return True

    @property
    def _loaded(self) -> bool:
        return "session" in self.__dict__

    @property
    def network(self) -> Clients | None:
        """The connections to the host. None: both models are in this process."""
        return self._client

    @property
    def n_parallel(self) -> int:
        """Number of slots: texts that are written at once. Further ones wait."""
        return self.session.turns.n

    def close(self) -> None:
        """Stops all texts and frees everything. It may be called twice, and from another thread."""

        def last(engine: _core.Engine) -> None:
            with ExitStack() as stack:  # all are closed, the engine first, whatever fails
                for other in (self._child, self._client):
                    if other is not None:
                        stack.callback(other.close)
                stack.callback(engine.close)
                profiles.keep(engine, self.profile_key)

        self.stop_vectors()
        self.session.close(last)
        self._embedder = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _t: type[BaseException] | None, _e: BaseException | None, _tb: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        if self._loaded and not self.session.closed:
            # Other threads may be the client's own, which `close` waits for.
            may_wait = self._client is None or threading.current_thread() is threading.main_thread()
            may_wait = may_wait and not self.session.in_hook
            self.close() if may_wait else threading.Thread(target=self.close, name="duo-close").start()
        elif (child := getattr(self, "_child", None)) is not None:
            child.close()  # __init__ failed

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy loads the models again, with the same arguments but `progress`."""
        model, draft, options = self._made_of
        return partial(type(self), **options), (model, draft)

    def __repr__(self) -> str:
        if not hasattr(self, "session") or self.session.closed:  # without one: the constructor has failed
            return "<Duo, closed>"
        names = [Path(m.path).name for m in (self.engine.target, self.engine.draft) if m is not None]
        names += [] if self._host is None else [self._host.name]
        return f"<Duo {' + '.join(names)}>"


__all__ = ["Duo", "EngineOptions", "GenerateOptions", "Stream"]
