"""`duo serve` as a child that has imported everything: llama-server's tests start a server for each of 400 cases."""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException
from multiprocessing import reduction
from typing import Any

CONTEXT: Any = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    ["duo.cli.main", "duo.cli.commands.serve", "duo.server.lifecycle", "uvicorn", "jinja2.sandbox", "yaml"]
)
START_S = 60.0
POLL_S = 0.1  # the tests ask every 10 ms, which takes the server's time


class ForkedServer:
    """What these tests use of subprocess.Popen."""

    def __init__(self, command: list[str], *, stdout: Any, env: Mapping[str, str], **_: Any) -> None:
        """command: the program, of which only the arguments count. Returns when it answers, or has ended."""
        output = reduction.DupFd(stdout.fileno())
        self._child = CONTEXT.Process(target=_serve, args=(command[1:], output, dict(env)), daemon=True)
        self._child.start()
        self.pid = self._child.pid
        self.terminate, self.kill = self._child.terminate, self._child.kill
        self._wait_until_ready(command)

    def _wait_until_ready(self, command: list[str]) -> None:
        host, port = (command[command.index(name) + 1] for name in ("--host", "--port"))
        until = time.monotonic() + START_S
        while self.poll() is None and time.monotonic() < until:
            connection = HTTPConnection(host.split(",")[0], int(port), timeout=START_S)
            try:
                connection.request("GET", "/health")
                if connection.getresponse().status == 200:
                    return
            except (OSError, HTTPException):
                pass
            finally:
                connection.close()
            self._child.join(POLL_S)

    @property
    def returncode(self) -> int | None:
        code: int | None = self._child.exitcode
        return code

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Raises subprocess.TimeoutExpired, as Popen does."""
        from subprocess import TimeoutExpired

        self._child.join(timeout)
        if self.returncode is None:
            raise TimeoutExpired("duo serve", timeout or 0.0)
        return self.returncode


def _serve(args: list[str], output: Any, env: dict[str, str]) -> None:
    from duo.cli.main import main

    fd = output.detach()
    os.dup2(fd, 1)
    os.dup2(fd, 2)
    os.close(fd)
    os.environ.clear()
    os.environ.update(env)
    more = completed(args, env.get("DUO_TESTS_DRAFT", ""), env["DUO_TESTS_NO_MODELS"])
    sys.exit(main(["serve", *more]))


def completed(args: list[str], draft: str, no_models: str) -> list[str]:
    """The arguments, with a draft (empty: none) if they are of a server that writes texts and has no other. Without a
    model llama-server is a router; duo is one with a folder of models."""
    if not {"--hf-repo", "--model", "--model-url", "--models-dir", "--models-preset"} & set(args):
        return [*args, "--models-dir", no_models]
    writes = {"--hf-repo", "--model"} & set(args) and not {"--embedding", "--reranking", "--model-draft"} & set(args)
    return [*args, "--model-draft", draft] if draft and writes else args
