"""One model in a process of its own, which listens on a Unix socket that only this user can open."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2

from duo.remote.parent import WITH_PARENT
from duo.server.router.sources import ModelSource

LOOK_S = 0.05  # between two questions whether it is ready
HEAD_S = 10.0  # for a short answer
SHORT_S = 5.0  # for one that others wait for
DEATH_S = 1.0  # from the last word of a process to its end


class NotLoaded(Exception):  # noqa: N818 - told as a sentence
    """The process ended before it was ready."""


class ModelProcess:
    """For one event loop. env: of the process. say: gets the lines that it writes on standard error. ended: called with
    its exit code when it has ended, 0 if it was stopped."""

    def __init__(
        self,
        source: ModelSource,
        socket: Path,
        env: Mapping[str, str],
        say: Callable[[str], None],
        *,
        ended: Callable[[int], None],
    ) -> None:
        self.source, self._socket, self._env, self._say, self._ended = source, socket, env, say, ended
        self.last_line = ""
        self._stopped = False
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        transport = httpx2.AsyncHTTPTransport(uds=str(socket), limits=httpx2.Limits(max_connections=None))
        self.http = httpx2.AsyncClient(transport=transport, base_url="http://model", timeout=None)

    @property
    def args(self) -> list[str]:
        """Of `duo`."""
        return [
            "serve",
            *self.source.args,
            "--alias",
            self.source.name.replace(",", "_"),
            "--host",
            f"unix:{self._socket}",
            "--no-ui",
        ]

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.returncode is None

    @property
    def pid(self) -> int:
        """Of the process; 0: it has not begun."""
        return 0 if self._process is None else self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None: it has not ended, or not begun."""
        return None if self._process is None else self._process.returncode

    async def has_died(self) -> bool:
        """After it gave no answer. The system tells of its end a moment later."""
        until = asyncio.get_running_loop().time() + DEATH_S
        while self.is_alive and asyncio.get_running_loop().time() < until:
            await asyncio.sleep(LOOK_S)
        return not self.is_alive

    async def start(self, begun: Callable[[], None]) -> None:
        """Returns when it serves. begun: called when there is a process. Raises NotLoaded, with what it said last."""
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "duo", *self.args, WITH_PARENT,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
            env=self._env,
        )  # fmt: skip
        self._reading = asyncio.create_task(self._read())
        begun()
        self._watching = asyncio.create_task(self._watch())
        if self._stopped:  # while the process began
            await self.stop()
        while self.is_alive and not self._stopped:
            with suppress(httpx2.HTTPError):
                if (await self.http.get("/health", timeout=HEAD_S)).status_code == 200:
                    return
            await asyncio.sleep(LOOK_S)
        await self._reading
        if self._stopped:
            raise NotLoaded("it was unloaded")
        raise NotLoaded(self.last_line.removeprefix("duo: ") or f"its process ended with code {self.exit_code}")

    async def _watch(self) -> None:
        assert self._process is not None
        code = await self._process.wait()
        self._ended(0 if self._stopped else code)

    async def about(self) -> dict[str, Any] | None:
        """What it says of its model; None: it gives no answer."""
        with suppress(httpx2.HTTPError, RuntimeError, ValueError, LookupError):
            model: dict[str, Any] = (await self.http.get("/v1/models", timeout=SHORT_S)).json()["data"][0]
            return model
        return None

    async def _read(self) -> None:
        assert self._process is not None and self._process.stderr is not None
        while True:
            try:
                line = await self._process.stderr.readline()
            except ValueError:  # a line that is too long; what comes next is read, because the process would wait
                continue
            if not line:
                return
            self.last_line = line.decode("utf-8", "replace").strip() or self.last_line
            self._say(self.last_line)

    def kill(self) -> None:
        """Its texts break off."""
        if self._process is not None and self.is_alive:
            with suppress(ProcessLookupError):
                self._process.kill()

    async def stop(self) -> None:
        """Ends it: at first its running texts get time. Safe to call twice."""
        self._stopped = True
        process = self._process
        if process is not None and process.returncode is None:
            with suppress(ProcessLookupError):
                process.terminate()
            try:
                await asyncio.wait_for(process.wait(), self.source.stop_s)
            except asyncio.TimeoutError:
                self.kill()
                await process.wait()
        for task in (self._reading, self._watching):
            if task is not None:
                await task
        await self.http.aclose()
