"""A target and a draft, loaded: their engine, where their layers are, and the host of the one that is elsewhere."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from duo import _core
from duo.errors import BadValueError, DoesNotFitError, DuoError
from duo.generation.job import draft_of, makes_guesses
from duo.generation.session import EngineSession
from duo.generation.trace_file import TraceFile
from duo.models.head import check_kind
from duo.models.paths import PathLike, pair, path, written
from duo.models.projector import see_with, with_projectors
from duo.options.engine import EngineOptions
from duo.options.generate import GenerateOptions
from duo.options.model import ModelOptions, Role, with_mtp
from duo.placement import packed, profiles
from duo.placement.belongings import Belongings
from duo.placement.devices import devices
from duo.placement.place import place
from duo.placement.projector_device import projector_device
from duo.remote import attach, host_of, in_child, n_ctx_remote
from duo.support.atomic import replacing
from duo.support.wording import one_line, quoted

if TYPE_CHECKING:
    from duo.generation.recent_events import RecentEvents
    from duo.remote.client.clients import Clients
    from duo.remote.client.connection import ClientSettings


def _save_lookup(engine: _core.Engine, file: Path) -> None:
    """The dynamic n-gram cache, after the engine was closed. Raises DuoError."""
    try:
        with replacing(file) as fresh:
            engine.save_lookup(os.fsencode(fresh))
    except OSError as e:
        raise DuoError(
            f"the n-gram cache {quoted(str(file))} could not be written ({e.strerror or one_line(e)})"
        ) from None


def _projector(
    o: EngineOptions, role: Role, file: PathLike | None, placed: _core.ModelOptions
) -> _core.ProjectorOptions:
    """file: None if the model is on another machine, or there is none. Raises DuoError."""
    if file is None:
        return see_with(o, role, None, placed.n_threads_batch, "")
    device = projector_device(ModelOptions.of(o, role), devices())
    return see_with(o, role, path(file, role), placed.n_threads_batch, device)


class LoadedPair:
    """Close it. What it has opened is closed again if it cannot be loaded.

    Attributes:
        session: The engine and the turns of its texts.
        embedder: The model for vectors. None: none was wanted, or this is closed.
        placed: The core's options of both models, with all that was chosen for them.
        placement: On which devices their layers are. None: no device is used.
        host, client, child: The address of the model that is elsewhere, the connections to it, and the child process
            that has it. None: there is none.
        profile_key: What this pair teaches is kept under the key. Empty: nothing is.
        lookup: The file of the dynamic n-gram cache, which is written at the end. None: there is none.
    """

    def __init__(
        self,
        model: PathLike | None,
        draft: PathLike | None,
        options: EngineOptions,
        defaults: GenerateOptions,
        *,
        vocab_only: bool = False,
        trace: str | RecentEvents | None = None,
        progress: Callable[[str, float], None] | None = None,
        embedder: Callable[[str], _core.Embedder] | None = None,
        prepare: Callable[[_core.EngineOptions], bool] = lambda _placed: True,
    ) -> None:
        """options, defaults: complete. trace: a file, or what keeps events. embedder: makes one of the
        target's file. prepare: may change how the models are loaded; False: nothing that earlier runs learned holds for
        them. Raises as `Duo`."""
        self.lookup: Path | None = None
        model, draft, o, self.child = in_child(model, draft, options)
        with ExitStack() as undo:
            if self.child is not None:
                undo.callback(self.child.close)
            self.host: ClientSettings | None = host_of(o, self.child)
            model, draft = pair(model, draft, o)
            draft = None if vocab_only else self._draft_file(model, draft, draft_of(defaults))
            if self.child is not None:
                self.child.start()
            if not vocab_only:
                files = (None if p is None else path(p, role) for p, role in ((model, "target"), (draft, "draft")))
                o = with_projectors(o, *files)
            self.placed = self._place(model, draft, o, defaults, vocab_only=vocab_only)
            self.placed.tracing = trace is not None
            if vocab_only:  # it writes nothing
                self.lookup, self.placed.lookup_static, self.placed.lookup_dynamic = None, b"", b""
            if not vocab_only:
                self.placed.projector = _projector(o, "target", model, self.placed.target)
                self.placed.draft_projector = _projector(o, "draft", draft, self.placed.draft)
            learns = prepare(self.placed)
            events = self._trace_file(trace, model, draft) if isinstance(trace, str) else trace
            if isinstance(events, TraceFile):
                undo.callback(events.close)
            belongings = Belongings(self.placed)
            try:
                engine = _core.Engine(self.placed, progress)
                undo.callback(engine.close)
                for options_of, loaded in ((self.placed.target, engine.target), (self.placed.draft, engine.draft)):
                    if loaded is not None:
                        packed.note_checked(options_of, loaded.packed_file)
                self.embedder = None if embedder is None or model is None else embedder(path(model, "target"))
                self.client: Clients | None = None if self.host is None else attach(self.host, engine)
                if self.client is not None:
                    undo.callback(self.client.close)
                self.session = EngineSession(
                    engine, network=self.client, trace=events, belongings=belongings, n_texts=self.placed.n_parallel
                )
            except MemoryError:
                raise DoesNotFitError(
                    "there is not enough memory for these models; lower -c or choose smaller files"
                ) from None
            warm = self.host is None and learns and not vocab_only  # a start with what earlier runs learned
            self.profile_key = profiles.restore(engine, self.placed) if warm else ""
            undo.pop_all()

    @property
    def elsewhere(self) -> str:
        """The host of the model that is on another machine; empty: none is."""
        return "" if self.host is None else self.host.where

    def _draft_file(self, model: PathLike | None, draft: PathLike | None, spec_type: str) -> PathLike | None:
        """spec_type: the kind of draft, as in --spec-type. Raises BadValueError: there is none of that kind here."""
        if self.host is not None and spec_type not in ("", "draft-simple"):
            raise BadValueError(
                f"{spec_type} (--spec-type) needs its target in the same process; leave out --draft-host, "
                "--verify-host and --rpc"
            )
        if self.host is not None and self.host.role == "verify" and draft is not None:
            _core.refuse_lone_head(os.fsencode(path(draft, "draft")))  # before anything connects
        if spec_type == "draft-mtp" and draft is None:
            draft = model  # the target's own layers
        if draft is not None:
            check_kind(draft, spec_type)
        return draft

    def _place(
        self,
        model: PathLike | None,
        draft: PathLike | None,
        o: EngineOptions,
        defaults: GenerateOptions,
        *,
        vocab_only: bool,
    ) -> _core.EngineOptions:
        """Sets `placement`. Raises BadValueError, DoesNotFitError, PeerLostError."""
        if model is None and o["n_parallel"] == "auto":
            o = {**o, "n_parallel": 1}  # the memory of the target's machine is not known here
        of_target = None if model is None else ModelOptions.of(o, "target", path(model, "target"))
        of_draft = None if draft is None else ModelOptions.of(o, "draft", path(draft, "draft"))
        if draft_of(defaults) == "draft-mtp" and of_target is not None and of_draft is not None:
            of_target, of_draft = with_mtp(of_target, of_draft)
        placed, self.placement = place(
            of_target,
            of_draft,
            n_ctx_remote=n_ctx_remote(self.host, o["n_ctx"]),
            drafted=makes_guesses(defaults, draft is not None or o["draft_host"] is not None),
            vocab_only=vocab_only,
        )
        placed.remote_draft = o["draft_host"] is not None
        if o["cache_ram"] and model is None:
            raise BadValueError("--cache-ram is for the cache of a target in this process; leave it out")
        placed.lookup_static, placed.lookup_dynamic = self._lookup_files(o)
        placed.n_kept_bytes = o["cache_ram"] << 20 if o["cache_ram"] > 0 else o["cache_ram"]
        return placed

    def _lookup_files(self, o: EngineOptions) -> tuple[bytes, bytes]:
        """The files of n-gram caches, static and dynamic; empty: none. Sets `lookup`. Raises BadValueError."""
        static, dynamic = o["lookup_cache_static"], o["lookup_cache_dynamic"]
        if static is not None and not os.path.isfile(static):
            raise BadValueError(f"there is no n-gram cache {quoted(static)} (--lookup-cache-static); check the path")
        if dynamic is not None:
            self.lookup = Path(written(dynamic, "n-gram cache (--lookup-cache-dynamic)"))
            if not os.path.isdir(self.lookup.absolute().parent):
                raise BadValueError(f"{quoted(dynamic)} (--lookup-cache-dynamic) is in no folder; make it first")
        return os.fsencode(static or ""), os.fsencode(dynamic or "")

    def _trace_file(self, file: str, model: PathLike | None, draft: PathLike | None) -> TraceFile:
        names = [None if p is None else Path(os.fsdecode(p)).name for p in (model, draft)]
        if self.host is not None:
            names[self.host.role == "draft"] = self.elsewhere
        return TraceFile(file, names[0] or "", names[1])

    def close(self) -> None:
        """Stops all texts and frees everything. Safe to call twice, and from another thread. Raises DuoError."""

        def last(engine: _core.Engine) -> None:
            if not self.session.home.is_this:  # after a fork all else is the parent's
                engine.close()
                return
            self.embedder = None  # frees its model
            with ExitStack() as stack:  # all are closed, the engine first, whatever fails
                for other in (self.child, self.client):
                    if other is not None:
                        stack.callback(other.close)
                if self.lookup is not None:
                    stack.callback(_save_lookup, engine, self.lookup)
                stack.callback(engine.close)
                profiles.keep(engine, self.profile_key)

        self.session.close(last)
