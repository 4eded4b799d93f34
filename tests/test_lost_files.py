"""Model files that cannot be read any more while they are used: a disk that fails, a file that is cut. The system sends
SIGBUS to whoever reads their pages; duo gives one sentence, and goes on."""

import mmap
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import EXACT, STOCK, needs_kernels, run_python
from packed_files import packed_file
from served import served
from sizes import mostly_daily

from duo import Duo, DuoError
from duo.models.demo import demo_pair

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux tells what is mapped")

GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 24}
PROMPT = "Once upon a time"
WHY = "can no longer be read: its disk failed, or the file became shorter; check it and load the model again"


def copied(folder: Path) -> tuple[Path, Path]:
    target, draft = (Path(shutil.copy(p, folder / p.name)) for p in demo_pair())
    return target, draft


def cut(file: Path) -> None:
    os.truncate(file, 4096)


@needs_kernels
def test_a_packed_file(tmp_path: Path) -> None:
    target, _ = copied(tmp_path)
    file = packed_file(target)
    with Duo(target, packed=str(file), **EXACT) as d, Duo(target, packed="off", **EXACT) as whole:
        right = d.generate(PROMPT, **GREEDY)
        cut(file)
        for _ in range(2):  # it stays so
            with pytest.raises(DuoError, match=f"{file.name} {WHY}"):
                d.generate(PROMPT, cache_prompt=False, **GREEDY)
        assert whole.generate(PROMPT, **GREEDY).tokens == right.tokens


def test_what_libllama_has_mapped(tmp_path: Path) -> None:
    target, _ = copied(tmp_path)
    with Duo(target, load_mode="mmap", **STOCK) as d:
        asked = GREEDY | {"max_tokens": 200}
        right = d.generate(PROMPT, **asked).tokens
        chunks = d.stream(PROMPT, cache_prompt=False, **asked)
        next(chunks)
        cut(target)
        with pytest.raises(DuoError, match=f"{target.name} {WHY}") as e:
            for _ in chunks:
                pass
        written = e.value.result.tokens
        assert 0 < len(written) < len(right) and right[: len(written)] == written


def test_of_two_models_with_one_file_the_first_is_closed(tmp_path: Path) -> None:
    target, _ = copied(tmp_path)
    with open(target, "rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as theirs:
        first = Duo(target, load_mode="mmap", **STOCK)
        with Duo(target, load_mode="mmap", **STOCK) as second:
            first.close()
            assert second.generate(PROMPT, **GREEDY).text
            cut(target)
            with pytest.raises(DuoError, match=WHY):
                second.generate(PROMPT, cache_prompt=False, **GREEDY)
        assert len(theirs) > 4096


@needs_kernels
def test_a_packed_file_while_it_is_copied(tmp_path: Path) -> None:
    target, _ = copied(tmp_path)
    file = packed_file(target)
    Duo(target, packed=str(file), **EXACT).close()  # it is found to be whole

    def lose(_path: str, share: float) -> None:
        if share < 0.2:
            cut(file)

    with pytest.raises(DuoError, match="run duo pack again"):
        Duo(target, packed=str(file), load_mode="none", progress=lose, **EXACT)


def test_a_draft_whose_file_is_lost_costs_guesses_only(tmp_path: Path) -> None:
    target, draft = copied(tmp_path)
    with Duo(target, load_mode="mmap", **STOCK) as alone:
        right, other = (alone.generate(p, **GREEDY).tokens for p in (PROMPT, "Another"))
    with Duo(target, draft, load_mode="mmap", **STOCK) as d:
        assert d.generate(PROMPT, **GREEDY).tokens == right
        cut(draft)
        r = d.generate(PROMPT, cache_prompt=False, mode="sync", **GREEDY)
        assert r.tokens == right and WHY in r.warning
        assert d.generate("Another", **GREEDY).tokens == other


def test_a_server_stays(tmp_path: Path) -> None:
    target, _ = copied(tmp_path)
    with served(model=target, load_mode="mmap", **STOCK) as s:
        assert s.post("/completion", {"prompt": PROMPT, "n_predict": 4}).status_code == 200
        assert s.get("/health").status_code == 200
        cut(target)
        answer = s.post("/completion", {"prompt": "Another one", "n_predict": 4})
        assert answer.status_code == 500 and WHY in answer.text and str(tmp_path) not in answer.text
        health = s.get("/health")  # so that a balancer sends requests elsewhere
        assert health.status_code == 503 and f"{target.name} can no longer be read" in health.text
        assert str(tmp_path) not in health.text and health.headers["Retry-After"]
        assert s.get("/livez").status_code == 200


OF_THEIRS = """
with open(sys.argv[2], "w+b") as f:
    f.truncate(100_000)
    theirs = mmap.mmap(f.fileno(), 100_000)
    f.truncate(10)
print("read", flush=True)
theirs[90_000]
"""
SENT = """
print("read", flush=True)
os.kill(os.getpid(), signal.SIGBUS)
"""


@pytest.mark.parametrize("how", mostly_daily([OF_THEIRS, SENT], [OF_THEIRS]), ids=["memory of theirs", "sent"])
def test_other_signals_are_not_duos_affair(how: str, tmp_path: Path) -> None:
    target, _ = copied(tmp_path)
    code = (
        "import faulthandler, mmap, os, signal, sys, duo\n"
        f"faulthandler.disable()\nd = duo.Duo(sys.argv[1])\nfaulthandler.enable()\n{how}"
    )
    done = run_python(code, str(target), str(tmp_path / "theirs"))
    assert (
        done.stdout == "read\n" and done.returncode == -signal.SIGBUS and done.stderr.count("Fatal Python error") == 1
    )
