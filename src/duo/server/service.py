"""What all requests share: the loaded pair, who is inside, and whether new requests are served."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from duo.errors import DuoError
from duo.generation.decoding import N_CHILDREN
from duo.generation.recent_events import RecentEvents
from duo.server.admission import Admission, Ticket
from duo.server.errors import ApiError, Asleep, as_api_error
from duo.server.media import names_media
from duo.server.metrics import Metrics, load_client
from duo.server.model_files import files_of, without_folders
from duo.server.recent_median import RecentMedian

if TYPE_CHECKING:
    from duo._core import Passes, Usage
    from duo.model import Duo
    from duo.server.schemas import Fields
    from duo.server.settings import ServerSettings
    from duo.server.text import ServedText

T = TypeVar("T")
QUEUE_PER_SLOT = 8
N_THREADS = 4  # for templates and tokens
RETRY_S = "5"  # when a client may ask again, of a server that loads or ends


class Stage(Enum):
    LOADING = "Loading model"
    READY = "ok"
    ASLEEP = "the models are not loaded, because nobody asked for a while"
    DRAINING = "the server is shutting down"


class Sleeper(Protocol):
    """Frees the models while nobody asks (duo.server.naps)."""

    remembered: dict[str, Any]  # answers of before, by route

    def is_quiet(self, path: str) -> bool: ...

    def visit(self, *, counts: bool = True) -> AbstractContextManager[None]: ...

    def used(self) -> None: ...

    async def wake(self) -> None: ...


class Stoppable(Protocol):
    """What writes the texts of a request."""

    def stop(self, why: Exception) -> None: ...


class Service:
    """For one event loop; the pair itself may be used by any thread."""

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self.stage = Stage.LOADING
        self.admission = Admission(1, 0)
        self.events = RecentEvents() if settings.ui else None  # for the page; the pair's trace
        self.running: set[ServedText] = set()
        self.writings: set[Stoppable] = set()
        self.plain_pass_ms = RecentMedian()
        self.metrics = Metrics(self._gauges, self._passes, of_llama_cpp=settings.metrics_of_llama_cpp)
        self.naps: Sleeper | None = None  # None: the models are never freed
        self.is_closing = False  # the models are freed, now or before
        self._duo: Duo | None = None
        self._files: set[str] = set()  # of the models, also while they are freed
        self._n_tasks = 0
        self._pool = ThreadPoolExecutor(N_THREADS, "duo-serve")
        # These take long, and others must not wait for them.
        self._of_vectors = ThreadPoolExecutor(1, "duo-vectors")
        self._of_media = ThreadPoolExecutor(N_CHILDREN, "duo-media")

    def loaded(self, duo: Duo) -> None:
        """Requests are served from now on."""
        n = duo.session.turns.n
        n_queue = self.settings.n_queue
        self.admission = Admission(n, QUEUE_PER_SLOT * n if n_queue is None else n_queue)
        self._duo, self._files = duo, files_of(duo)
        if self.stage in (Stage.LOADING, Stage.ASLEEP):
            self.stage = Stage.READY

    def fall_asleep(self) -> Duo:
        """The pair, which the caller closes; the next request loads it again. Raises ApiError 503."""
        duo = self.check_ready()
        self.stage, self._duo = Stage.ASLEEP, None
        return duo

    @property
    def is_asleep(self) -> bool:
        return self.stage is Stage.ASLEEP

    def remembered(self, name: str) -> Any:
        """An answer of before the models were freed, by its route; None: there is none."""
        return None if self.naps is None else self.naps.remembered.get(name)

    @property
    def duo(self) -> Duo:
        """Raises ApiError 503: it is not loaded yet."""
        if self._duo is None:
            raise self.not_ready()
        return self._duo

    @property
    def has_page(self) -> bool:
        return self.events is not None

    @property
    def is_ready(self) -> bool:
        return self.stage is Stage.READY

    @property
    def is_ending(self) -> bool:
        return self.stage is Stage.DRAINING

    @property
    def is_busy(self) -> bool:
        """Whether texts are inside, or answers that were not read yet."""
        return bool(self.admission.n_inside or self.writings)

    def check_ready(self) -> Duo:
        """The pair. Raises ApiError 503."""
        if not self.is_ready:
            raise self.not_ready(self.stage.name.lower())
        if self.naps is not None:
            self.naps.used()
        return self.duo

    def error_of(self, e: BaseException) -> ApiError:
        """Any failure as an answer, which does not say where the models' files are."""
        error = as_api_error(e)
        error.message = without_folders(error.message, self._files)
        return error

    def not_ready(self, reason: str = "") -> ApiError:
        """What a client gets while the server loads or ends. reason: one of REASONS, if that is to be counted."""
        kind = Asleep if self.is_asleep else ApiError
        return kind(503, self.stage.value, headers={"Retry-After": RETRY_S}, reason=reason)

    def enter(self, n: int, *, vectors: bool = False) -> Ticket:
        """For n texts, before anything is computed. vectors: that are only read. Raises ApiError 429, 501 and 503."""
        if self.settings.embeds and not vectors:
            raise ApiError(501, "this server was started for embeddings; start one without --embedding and --rerank")
        self.check_ready()
        return self.admission.enter(n)

    async def in_thread(
        self, call: Callable[..., T], *args: Any, vectors: bool = False, fields: Fields | None = None
    ) -> T:
        """What takes long must not stop the loop. vectors: it computes embeddings, one request after the other.
        fields: of the request; if they name pictures or sound, these are fetched and decoded. Raises ApiError 503: the
        server has ended."""
        if self.is_closing:
            raise self.not_ready()
        pool = self._of_vectors if vectors else self._of_media if names_media(fields) else self._pool
        return await asyncio.get_running_loop().run_in_executor(pool, partial(call, *args))

    async def metrics_page(self) -> bytes:
        """What Prometheus gets."""
        await self.in_thread(load_client)
        return self.metrics.page

    @property
    def next_task_id(self) -> int:
        self._n_tasks += 1
        return self._n_tasks

    @property
    def n_ctx(self) -> int:
        return self.duo.n_ctx()

    @property
    def usage(self) -> Usage | None:
        """What the engine holds; None: there is none, or it has ended."""
        if self._duo is None:
            return None
        try:
            return self._duo.engine.usage
        except DuoError:
            return None

    def _passes(self) -> Passes | None:
        usage = self.usage
        return usage["passes"] if usage is not None and usage["target"]["cells"] else None

    def _cache(self) -> dict[str, float]:
        """What the cache holds. A target elsewhere does not tell; then the texts are counted."""
        usage = self.usage
        if usage is None:
            return {"cache_usage_ratio": 0.0}
        target, cells = usage["target"], usage["target"]["cells"]
        held = [cells[t.slot] if 0 <= t.slot < len(cells) else t.n_prompt + t.n_tokens for t in self.running]
        return {
            "cache_usage_ratio": min(1.0, sum(held) / self.n_ctx),
            "cache_tokens": sum(cells),
            "texts_parked": target["n_parked"],
            "texts_kept": target["n_kept"],
            "texts_kept_bytes": target["kept_bytes"],
            "texts_open": usage["n_open"],
            "draft_cache_tokens": sum(usage["draft"]["cells"]),
        }

    def _gauges(self) -> dict[str, float]:
        n_running = len(self.running)
        return {
            "requests_running": n_running,
            "requests_waiting": max(0, self.admission.n_inside - n_running),
            "places": self.admission.n_slots,
            **self._cache(),
            "ready": float(self.is_ready or self.is_asleep),
        }

    def stop_all(self) -> None:
        """Ends what still runs; the clients get an error."""
        for writing in list(self.writings):
            writing.stop(ApiError(503, Stage.DRAINING.value))
        if self._duo is not None:
            self._duo.stop_vectors()

    def close(self) -> None:
        """Frees the models. It may wait for a pass."""
        self.is_closing, self.stage = True, Stage.DRAINING
        for pool in (self._pool, self._of_vectors, self._of_media):
            pool.shutdown(wait=False)  # what waits for the Duo then gets CancelledError
        if self._duo is not None:
            self._duo.close()
