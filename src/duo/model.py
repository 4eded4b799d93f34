"""`Duo`: a target, a draft, and the texts they write."""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

from typing_extensions import Self, Unpack

from duo import _core
from duo.compat.llama_cpp import names as llama_cpp_names
from duo.compat.llama_cpp.chat import Chats
from duo.compat.llama_cpp.chat_formats import see_as_handler
from duo.errors import BadValueError, DuoError
from duo.generation.embeddings import Embeddings, open_embedder, pooling_named
from duo.generation.recent_events import RecentEvents
from duo.generation.stream import Stream
from duo.loaded_pair import LoadedPair
from duo.models.loading import hub_paths, pair_paths
from duo.models.paths import PathLike, written
from duo.options.engine import EngineOptions
from duo.options.generate import GenerateOptions
from duo.options.llama_cpp import DuoOptions, LoadOptions
from duo.options.lookup import add_ngrams_of_files
from duo.options.signature import keywords
from duo.options.speculation import leaves_guesses
from duo.options.tables import ENGINE_OPTIONS, GENERATE_OPTIONS
from duo.options.validate import check_keywords, engine_options, generate_options
from duo.placement import auto_draft, guard

if TYPE_CHECKING:
    from duo.placement.fit import PairPlacement
    from duo.remote.client.clients import Clients

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


# The base classes hold the public calls in groups; delegation would repeat 75 signatures. The state is in components:
# LoadedPair, EngineSession, ChatTemplate, EvaluatedTokens.
class Duo(Chats, Embeddings):
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

    Raises:
        TypeError: A keyword is unknown.
        UnknownModelError: There is no such file, or it is not a model.
        BadValueError: A value is wrong, or the vocabularies do not fit each other.
        DoesNotFitError: There is not enough memory.
        PeerLostError: The other machine cannot be reached, or refuses.
    """

    _pair: LoadedPair

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
        see_as_handler(remaining)
        self._choose_chat(remaining)
        remaining.pop("spm_infill", None)  # see the property
        embeds, pooling = bool(remaining.pop("embedding", False)), pooling_named(remaining.pop("pooling_type", -1))
        vocab_only = bool(remaining.pop("vocab_only", False)) or embeds
        of_embedder = {k: v for k, v in remaining.items() if k in ENGINE_OPTIONS}
        if vocab_only:
            remaining = _without_weights(draft, remaining, "embedding" if embeds else "vocab_only")
        check_keywords("Duo", remaining, ENGINE_OPTIONS, GENERATE_OPTIONS)
        log_path = b"" if log_file is None else os.fsencode(written(log_file, "log file"))
        events = trace if trace is None or isinstance(trace, RecentEvents) else written(trace, "trace file")
        self.options = engine_options({k: v for k, v in remaining.items() if k in ENGINE_OPTIONS})
        self.defaults = cast("GenerateOptions", {k: v for k, v in remaining.items() if k in GENERATE_OPTIONS})
        add_ngrams_of_files(self.defaults, self.options, drafted=draft is not None)
        defaults = generate_options({**self.defaults})
        if (kind := self.options["numa"]) is not None:
            _core.use_numa(kind)

        def prepare(placed: _core.EngineOptions) -> bool:
            _core.log_to(bool(verbose), log_path)
            return self._before_loading(placed)

        def embedder(file: str) -> _core.Embedder:
            return open_embedder(file, engine_options(of_embedder), pooling, progress)

        self._pair = LoadedPair(
            model,
            draft,
            self.options,
            defaults,
            vocab_only=vocab_only,
            trace=events,
            progress=progress,
            embedder=embedder if embeds else None,
            prepare=prepare,
        )
        guard.tell()  # the program has said it before
        _alive.add(self)
        if auto and leaves_guesses(self.defaults, drafted=self.draft is not None):
            auto_draft.add_ngrams(self, defaults["accept"])

    @classmethod
    @keywords(LoadOptions)
    def from_pretrained(
        cls,
        repo_id: str,
        filename: str | None = None,
        draft_repo_id: str | None = None,
        draft_filename: str | None = None,
        *,
        cache_dir: str | os.PathLike[str] | None = None,
        token: str | None = None,
        offline: bool | None = None,
        **options: Unpack[LoadOptions],
    ) -> Self:
        """Loads models from the Hugging Face Hub, which are downloaded the first time.

        Args:
            repo_id: The target's repository: `user/repo`, or `user/repo:quant`.
            filename: A file in it, or a pattern with `*` that matches one file. Default: llama.cpp's choice, which is
                Q4_K_M, otherwise Q8_0, otherwise any.
            draft_repo_id: The draft's repository.
            draft_filename: A file in it. Default: a draft head (with mtp-, dspark-, dflash- or eagle3- in its name) of
                the kind that `spec_type` names; otherwise as for the target.
            cache_dir: Folder for the files. Default: the hub's cache.
            token: Access token. Default: the environment's HF_TOKEN.
            offline: Use only files that are on the disk.
            **options: Keywords of `Duo`.

        Raises:
            UnknownModelError: There is no such repository or file.
            AccessDeniedError: The model is gated or private, or the token is wrong.
            PeerLostError: The hub cannot be reached.
            DoesNotFitError: The disk has no room for the files.
            DuoError: What `Duo` raises.
        """
        load_options: dict[str, Any] = dict(options)
        for name in ("additional_files", "local_dir"):
            if load_options.pop(name, None):
                raise BadValueError(
                    f"llama_cpp's {name} is not supported by duo; files go to the hub's cache (cache_dir)"
                )
        load_options.pop("local_dir_use_symlinks", None)
        files = hub_paths(
            (repo_id, filename),
            (draft_repo_id, draft_filename),
            options.get("spec_type"),
            cache_dir=cache_dir,
            token=token,
            offline=offline,
        )
        return cls(*files, **load_options)

    @classmethod
    @keywords(LoadOptions)
    def from_pair(cls, name: str, **options: Unpack[LoadOptions]) -> Self:
        """Loads a pair that duo knows, which is downloaded the first time. Errors are those of `from_pretrained`.

        If the pair has no draft file, the target's MTP layers or n-grams guess, unless the options say otherwise.

        Args:
            name: Its name, from `duo pairs`.
            **options: Keywords of `Duo`.
        """
        files, load_options = pair_paths(name, options)
        return cls(*files, **load_options)

    # ---- life

    def _before_loading(self, placed: _core.EngineOptions) -> bool:
        """A subclass may change how the models are loaded. False: nothing that earlier runs learned holds for it."""
        return True

    @property
    def _loaded(self) -> bool:
        return "_pair" in self.__dict__

    @property
    def placed(self) -> _core.EngineOptions:
        """The core's options of both models, with all that was chosen for them."""
        return self._pair.placed

    @property
    def placement(self) -> PairPlacement | None:
        """On which devices the layers are, and the memory that they take. None: no device is used."""
        return self._pair.placement

    @property
    def profile_key(self) -> str:
        """What this pair teaches is kept under the key. Empty: nothing is."""
        return self._pair.profile_key

    @property
    def network(self) -> Clients | None:
        """The connections to the host. None: both models are in this process."""
        return self._pair.client

    @property
    def n_parallel(self) -> int:
        """Number of slots: texts that are written at once. Further ones wait."""
        return self.session.turns.n

    def close(self) -> None:
        """Stops all texts and frees everything. It may be called twice, and from another thread."""
        self.stop_vectors()
        self._pair.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _t: type[BaseException] | None, _e: BaseException | None, _tb: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        if self._loaded and not self.session.closed:
            # Other threads may be the client's own, which `close` waits for.
            may_wait = self.network is None or threading.current_thread() is threading.main_thread()
            may_wait = may_wait and not self.session.in_hook
            self.close() if may_wait else threading.Thread(target=self.close, name="duo-close").start()

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy loads the models again, with the same arguments but `progress`."""
        model, draft, options = self._made_of
        return partial(type(self), **options), (model, draft)

    def __repr__(self) -> str:
        if not self._loaded or self.session.closed:  # without one: the constructor has failed
            return "<Duo, closed>"
        names = [Path(m.path).name for m in (self.engine.target, self.engine.draft) if m is not None]
        names += [] if self._pair.host is None else [self._pair.host.name]
        return f"<Duo {' + '.join(names)}>"


__all__ = ["Duo", "EngineOptions", "GenerateOptions", "Stream"]
