"""The life of a server: it listens at once, loads, serves, and after SIGTERM lets running texts end."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING

import uvicorn

from duo.server.app import make_app
from duo.server.listening import ListeningSocket
from duo.server.naps import Naps
from duo.server.protocol import protocol_with
from duo.server.routes.about import answers
from duo.server.service import Service, Stage

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from duo.model import Duo

# Seconds between "not ready" and the end, so that a balancer that asks every half second has heard of it.
NOT_READY_S = 0.6
END_S = 5  # for connections, when all texts have ended
NOW_S = 0.3  # for connections and models, after the second signal
N_HEAD = 32 << 10  # bytes of a request's head


class _Server(uvicorn.Server):
    """uvicorn closes its port first when a signal comes; here `Serving` handles signals."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def cut_off(self) -> None:
        """The server waits for no connection any more."""
        self.force_exit = True
        for connection in list(self.server_state.connections):
            if (transport := getattr(connection, "transport", None)) is not None:
                transport.abort()


class Serving:
    """One server in one event loop. load: makes the pair, in a thread. ready: called when it is there."""

    def __init__(
        self,
        service: Service,
        listeners: Sequence[ListeningSocket],
        load: Callable[[], Duo],
        *,
        drain_s: float,
        ready: Callable[[Duo], None] = lambda _duo: None,
        cert: str | None = None,
        key: str | None = None,
        sleep_s: float = 0.0,
        app: Starlette | None = None,
    ) -> None:
        """sleep_s: seconds without a request after which the models are freed; 0: never. app: in place of a pair's."""
        self.service = service
        self._listeners, self._load, self._ready, self._drain_s = listeners, load, ready, drain_s
        self._sleep_s = sleep_s
        config = uvicorn.Config(
            make_app(service) if app is None else app,
            http=protocol_with(
                service.settings.header_timeout_s,
                service.settings.timeout_s,
                partial(service.metrics.refused, "head_too_slow"),
            ),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=service.settings.keep_alive_s,
            timeout_graceful_shutdown=END_S,
            h11_max_incomplete_event_size=N_HEAD,
            ssl_certfile=cert,
            ssl_keyfile=key,
        )
        self._server = _Server(config)
        self._failure: BaseException | None = None
        self._ending: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    # ---- life

    def run(self) -> None:
        """Until a signal, or `end`. Raises what loading raised."""
        for name in ("uvicorn", "uvicorn.error", "uvicorn.access", "asyncio"):
            logging.getLogger(name).setLevel(logging.CRITICAL)  # clients must not fill the log
        asyncio.run(self._run())
        if self._failure is not None:
            raise self._failure

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        with suppress(ValueError, RuntimeError, NotImplementedError):  # not in the main thread
            for s in (signal.SIGTERM, signal.SIGINT):
                self._loop.add_signal_handler(s, self._signalled)
        tasks = [asyncio.create_task(self._begin())]
        if self._sleep_s:
            self.service.naps = Naps(self.service, self._sleep_s, self._loaded, partial(answers, self.service.settings))
            tasks.append(asyncio.create_task(self.service.naps.watch()))
        try:
            await self._server.serve(sockets=[x.socket for x in self._listeners])
        finally:
            for x in self._listeners:
                x.close()
            for task in tasks:
                task.cancel()  # a load itself goes on, and frees what it has made
            await self._free()
            if self._hurry.is_set():  # asyncio.run would wait for what is in the old one, such as a text's last pass
                self._loop.set_default_executor(ThreadPoolExecutor(1))

    async def _until_hurried(self, work: asyncio.Future[None]) -> bool:
        """Waits for its end, but only for a moment after the second signal. Returns whether it has ended."""

        async def second_signal() -> None:
            await self._hurry.wait()
            await asyncio.sleep(NOW_S)

        hurried = asyncio.create_task(second_signal())
        await asyncio.wait({work, hurried}, return_when=asyncio.FIRST_COMPLETED)
        hurried.cancel()
        return work.done()

    async def _free(self) -> None:
        """Frees the models; after a second signal, a pass may go on when this returns."""
        done: Future[None] = Future()

        def work() -> None:
            done.set_running_or_notify_cancel()
            try:
                self.service.close()
                done.set_result(None)
            except BaseException as e:
                done.set_exception(e)

        # A thread of its own: the process may end without it.
        threading.Thread(target=work, name="duo-close", daemon=True).start()
        freed = asyncio.wrap_future(done)
        if await self._until_hurried(freed):
            freed.result()

    async def _loaded(self) -> Duo:
        """The pair. Raises what loading raised."""
        done: asyncio.Future[Duo] = asyncio.get_running_loop().create_future()

        def work() -> None:
            # A thread of its own: a load may take minutes, and the pool is for requests.
            pair: Duo | None = None
            try:
                pair = self._load()
                call: Callable[[], None] = partial(_settle, done, pair)
            except BaseException as e:
                call = partial(_settle, done, e)
            try:
                done.get_loop().call_soon_threadsafe(call)
            except RuntimeError:  # the server has ended meanwhile
                if pair is not None:
                    pair.close()

        threading.Thread(target=work, name="duo-load", daemon=True).start()
        return await done

    async def _begin(self) -> None:
        naps = self.service.naps
        try:
            with nullcontext() if naps is None else naps.visit():  # the time without a request begins after the load
                duo = await self._loaded()
                self.service.loaded(duo)
            if self.service.is_ready:
                self._ready(duo)
        except asyncio.CancelledError:
            raise
        except BaseException as e:
            self._failure = e
            self._server.should_exit = True

    @property
    def is_listening(self) -> bool:
        """Whether requests are answered, if only with status 503."""
        return self._server.started

    # ---- end

    def end(self) -> None:
        """As SIGTERM does; from any thread, and after the end, too."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._signalled)

    def _signalled(self) -> None:
        if self._ending is None:
            self._ending = asyncio.create_task(self._drain())
        elif not self._hurry.is_set():  # the second one: at once
            self._hurry.set()
            self.service.stop_all()
            self._server.should_exit = True
            # Clients that do not read would hold the server up for END_S; the others hear of the end until then.
            asyncio.get_running_loop().call_later(NOW_S, self._server.cut_off)

    async def _drain(self) -> None:
        service = self.service
        loading = service.stage is Stage.LOADING
        service.stage = Stage.DRAINING
        clock = asyncio.get_running_loop().time
        until = clock() + self._drain_s
        if not loading:
            await asyncio.sleep(min(NOT_READY_S, self._drain_s))
        while service.is_busy and clock() < until and not self._server.should_exit:
            await asyncio.sleep(0.02)
        service.stop_all()
        while service.admission.n_inside and clock() < until + END_S and not self._server.should_exit:
            await asyncio.sleep(0.02)
        self._server.should_exit = True


def _settle(done: asyncio.Future[Duo], outcome: Duo | BaseException) -> None:
    if done.done():  # the server ends: nobody waits any more
        if not isinstance(outcome, BaseException):
            threading.Thread(target=outcome.close, name="duo-close").start()
    elif isinstance(outcome, BaseException):
        # A future cannot hold StopIteration.
        done.set_exception(RuntimeError(str(outcome)) if isinstance(outcome, StopIteration) else outcome)
    else:
        done.set_result(outcome)
