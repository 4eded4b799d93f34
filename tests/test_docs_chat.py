"""The examples in docs/chat.md do what they say."""

import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import HANG_S

pytestmark = pytest.mark.full

PAGE = (Path(__file__).parents[1] / "docs" / "chat.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def test_the_python_examples_run(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, object] = {}
    assert len(blocks("python")) == 2
    for block in blocks("python"):
        exec(compile(block, "docs/chat.md", "exec"), names)
    out = capsys.readouterr().out
    assert out.startswith("Once upon a time")
    assert re.search(r'\{\s?"frogs"', out)
    assert out.splitlines()[-1] in ("yes", "no")


@pytest.mark.daily
def test_the_shell_examples_run(tmp_path: Path) -> None:
    program = tmp_path / "duo"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m duo "$@"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    env = os.environ | {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    assert len(blocks("sh")) == 2
    for block in blocks("sh"):
        script = "set -e\n" + block
        done = subprocess.run(
            ["sh", "-c", script],
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=HANG_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip()
