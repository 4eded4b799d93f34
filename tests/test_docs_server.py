"""The examples of docs/server.md, against a server on another port."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import HANG_S
from served import Server, served

TEXT = (Path(__file__).parents[1] / "docs" / "server.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(sh|python)\n(.*?)^```", TEXT, re.M | re.S)
CURLS = [line for kind, code in BLOCKS if kind == "sh" for line in code.splitlines() if line.startswith("curl ")]
PROGRAMS = [code for kind, code in BLOCKS if kind == "python"]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with served() as s:
        yield s


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
@pytest.mark.parametrize("i", range(len(CURLS)))
def test_commands(server: Server, i: int) -> None:
    command = CURLS[i].replace("http://127.0.0.1:8080", server.url).replace("curl ", "curl -sSf ", 1)
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(("{", "data: "))


@pytest.mark.parametrize("i", range(len(PROGRAMS)))
def test_programs(server: Server, i: int) -> None:
    code = PROGRAMS[i].replace("http://127.0.0.1:8080", server.url)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=HANG_S)
    assert done.returncode == 0 and done.stdout, done.stderr


def test_every_route_and_option_is_described(server: Server) -> None:
    for path in server.get("/openapi.json").json()["paths"]:
        if path != "/v1/models/{name}":
            assert any(f"{path}{end}" in TEXT for end in "`,?"), path
