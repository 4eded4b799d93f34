"""Every example in README.md and docs/ is run, with the demo pair under the names that the text uses.

A block that cannot run here says why in a comment above it: <!-- not run: it needs two machines -->
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from conftest import HANG_S, start_duo
from mtp_models import mtp_part
from sizes import mostly_daily
from tiny_models import tiny
from waits import first_line

from duo import Duo
from duo.models.demo import demo_pair

ROOT = Path(__file__).parent.parent
FILES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs" / "guides").glob("*.md"))]
# Generated, or tested in test_docs_chat.py, test_docs_server.py and test_docs_guides.py.
ELSEWHERE = ("cli.md", "chat.md", "server.md", "python_service.md")
MTP = re.compile("GLM|MTP")  # models with MTP layers
DRAFTS = re.compile(r"8B|1B|0\.5B|draft|small|q4_0", re.IGNORECASE)
NEEDS_THE_HUB = re.compile(r"-hfd? |--pair (?!demo)|[\w.-]+/[\w.-]+-GGUF|pairs add")
BLOCK = re.compile(r"(<!-- not run: (?P<why>.+?) -->\n+)?^```(?P<language>sh|python)\n(?P<code>.*?)^```", re.M | re.S)


class Block(NamedTuple):
    where: str
    language: str
    code: str
    why_not: str


def blocks() -> Iterator[Block]:
    for path in FILES:
        text = "" if path.name in ELSEWHERE else path.read_text(encoding="utf-8")
        for m in BLOCK.finditer(text):
            line = text.count("\n", 0, m.start("code")) + 1
            yield Block(f"{path.name}:{line}", m["language"], m["code"], m["why"] or "")


ALL = list(blocks())
PYTHON = [b for b in ALL if b.language == "python" and not b.why_not]


def commands(code: str) -> list[list[str]]:
    """The lines that call duo, without their comments; a line may go on after a backslash. What only downloads would
    show is tested against a hub of the tests' own (test_hub_command.py). 24 tokens show that a line works."""
    lines = re.sub(r" -n \d+\b", " -n 24", code.replace("\\\n", " ")).splitlines()
    return [
        shlex.split(line, comments=True)[1:]
        for line in lines
        if line.startswith("duo ") and not NEEDS_THE_HUB.search(line)
    ]


SHELL = [b for b in ALL if b.language == "sh" and not b.why_not and commands(b.code)]
OFTEN = [b for b in PYTHON + SHELL if b.where.startswith("README.md:")]


@pytest.fixture
def place(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A folder with the files that the examples name."""
    block: Block = request.node.callspec.params["block"]
    target, draft = demo_pair()
    for name in {n for b in ALL for n in re.findall(r"[\w.-]+\.gguf", b.code)}:
        if not MTP.search(name):
            (tmp_path / name).symlink_to(draft if DRAFTS.search(name) else target)
    if MTP.search(block.code):
        whole = tiny("glm4moe", draft, tmp_path / "GLM-4.5-Air.gguf", n_mtp=1)
        mtp_part(whole, tmp_path / "mtp-GLM-4.5-Air.gguf")
        tiny("qwen35moe", draft, tmp_path / "Qwen3.6-35B-A3B-MTP.gguf", n_mtp=1)
    (tmp_path / "code.txt").write_text("def f(x):\n    return x\n\ndef g(x):\n", encoding="utf-8")
    (tmp_path / "prompt.txt").write_text("Once upon a time", encoding="utf-8")
    return tmp_path


def run(args: list[str], place: Path) -> None:
    environment = {**os.environ, "LLAMA_ARG_N_PREDICT": "24", "DUO_PROFILES": "off"}
    done = subprocess.run(
        args, cwd=place, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=HANG_S
    )
    assert done.returncode == 0, f"{shlex.join(args)}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"


@pytest.mark.full
@pytest.mark.parametrize("block", mostly_daily(PYTHON, [b for b in PYTHON if b in OFTEN]), ids=lambda b: b.where)
def test_python_examples_run(block: Block, place: Path) -> None:
    code = block.code if "import duo" in block.code else "import duo\n" + block.code
    run([sys.executable, "-c", code], place)


@pytest.mark.slow
@pytest.mark.parametrize("block", mostly_daily(SHELL, [b for b in SHELL if b in OFTEN]), ids=lambda b: b.where)
def test_commands_run(block: Block, place: Path) -> None:
    servers = []
    try:
        for args in commands(block.code):
            if args[-1] == "&":
                servers.append(start_duo(*args[:-1], cwd=place))
                assert "127.0.0.1" in first_line(servers[-1]), servers[-1].communicate(timeout=HANG_S)
            else:
                run([sys.executable, "-m", "duo", *args], place)
    finally:
        for s in servers:
            s.terminate()
            s.communicate(timeout=HANG_S)


def test_names_in_the_text_exist() -> None:
    with Duo(n_ctx=64) as d:
        for path in FILES:
            for name in re.findall(r"\bd\.([a-z_0-9]+)", path.read_text("utf-8")):
                assert hasattr(Duo, name) or hasattr(d, name), f"{path.name}: d.{name}"


def test_there_are_examples() -> None:
    assert len(PYTHON) >= 3 and len(SHELL) >= 3
    assert all(b.why_not == b.why_not.strip() for b in ALL)


# Not all of ROOT: environments and builds have thousands of folders.
PAGES = [
    *ROOT.glob("*.md"),
    *(p for f in ("benchmarks", "csrc", "deploy", "docs", "src") for p in (ROOT / f).rglob("*.md")),
]


def headings(page: Path) -> set[str]:
    """The anchors of its headings, as GitHub makes them."""
    found = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in found}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8")):
        if link.startswith("http"):
            continue
        path, _, anchor = link.partition("#")
        there = page.parent / path if path else page
        assert there.exists(), link
        assert not anchor or there.suffix != ".md" or anchor in headings(there), link


def test_the_readme_fits_a_screen() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 100
