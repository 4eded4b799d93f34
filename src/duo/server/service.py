"""What all requests share: the loaded pair, who is inside, and whether new requests are served."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from duo.server.admission import Admission, Ticket
from duo.server.errors import ApiError
from duo.server.metrics import Metrics
from duo.server.recent_median import RecentMedian
from duo.text.recent_events import RecentEvents

if TYPE_CHECKING:
    from duo.api.engine import Duo
    from duo.server.settings import Settings
    from duo.server.text import Text

T = TypeVar("T")
QUEUE_OF_A_PLACE = 8
N_THREADS = 4  # for templates and tokens


class Stage(Enum):
    LOADING = "Loading model"
    READY = "ok"
    DRAINING = "the server is shutting down"


class Stoppable(Protocol):
    """What writes the texts of a request."""

    def stop(self, why: Exception) -> None: ...


class Service:
    """For one event loop; the pair itself may be used by any thread."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.stage = Stage.LOADING
        self.admission = Admission(1, 0)
        self.events = RecentEvents() if settings.ui else None  # for the page; the pair's trace
        self.running: set[Text] = set()
        self.writings: set[Stoppable] = set()
        self.plain_pass_ms = RecentMedian()
        self.metrics = Metrics(self._gauges, of_llama_cpp=settings.metrics_of_llama_cpp)
        self._duo: Duo | None = None
        self._n_tasks = 0
        self._pool = ThreadPoolExecutor(N_THREADS, "duo-serve")

    def loaded(self, duo: Duo) -> None:
        """Requests are served from now on."""
        n = duo.session.turns.n
        n_queue = self.settings.n_queue
        self.admission = Admission(n, QUEUE_OF_A_PLACE * n if n_queue is None else n_queue)
        self._duo = duo
        if self.stage is Stage.LOADING:
            self.stage = Stage.READY

    @property
    def duo(self) -> Duo:
        """Raises ApiError 503: it is not loaded yet."""
        if self._duo is None:
            raise ApiError(503, Stage.LOADING.value)
        return self._duo

    @property
    def is_ready(self) -> bool:
        return self.stage is Stage.READY

    def check_ready(self) -> Duo:
        """The pair. Raises ApiError 503."""
        if not self.is_ready:
            self.metrics.refused(self.stage.name.lower())
            headers = {"Connection": "close", "Retry-After": "5"} if self.stage is Stage.DRAINING else {}
            raise ApiError(503, self.stage.value, headers=headers)
        return self.duo

    def enter(self, n: int) -> Ticket:
        """For n texts, before anything is computed. Raises ApiError 429 and 503."""
        self.check_ready()
        try:
            return self.admission.enter(n)
        except ApiError:
            self.metrics.refused("queue_full")
            raise

    async def in_thread(self, call: Callable[..., T], *args: Any) -> T:
        """What takes long must not stop the loop."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, partial(call, *args))

    @property
    def next_task_id(self) -> int:
        self._n_tasks += 1
        return self._n_tasks

    @property
    def n_ctx(self) -> int:
        return self.duo.n_ctx()

    @property
    def cache_share(self) -> float:
        """Of the context, what the running texts hold."""
        if self._duo is None:
            return 0.0
        return min(1.0, sum(t.n_prompt + t.n_tokens for t in list(self.running)) / self.n_ctx)

    def _gauges(self) -> dict[str, float]:
        n_running = len(self.running)
        return {
            "requests_running": n_running,
            "requests_waiting": max(0, self.admission.n_inside - n_running),
            "places": self.admission.n_places,
            "cache_usage_ratio": self.cache_share,
            "ready": float(self.is_ready),
            **self._held(),
        }

    def _held(self) -> dict[str, float]:
        """What the pair holds. A model elsewhere tells nothing of its cache."""
        if self._duo is None:
            return {}
        usage = self._duo.engine.usage
        target, draft = usage["target"], usage["draft"]
        return {
            "cache_tokens": sum(target["cells"]),
            "draft_cache_tokens": sum(draft["cells"]),
            "kept_texts": target["n_kept"],
            "kept_bytes": target["kept_bytes"],
            "parked_texts": target["n_parked"],
            "open_texts": usage["n_open"],
        }

    def stop_all(self) -> None:
        """Ends what still runs; the clients get an error."""
        for writing in list(self.writings):
            writing.stop(ApiError(503, Stage.DRAINING.value))

    def close(self) -> None:
        """Frees the models. It may wait for a pass."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        if self._duo is not None:
            self._duo.close()
