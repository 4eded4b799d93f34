"""`duo -m X` alone: a list of pairs has a draft for X, which lies in the hub's cache, on this disk or nowhere yet."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from duo.models.beside import find
from duo.models.demo import demo_pair
from duo.models.pairs import ModelRef, Pair, add, user_file

TARGET, DRAFT = demo_pair()
LINE = ("-p", "once upon a time", "-n", "12", "--temp", "0", "--ignore-eos", "-c", "256")
pytestmark = pytest.mark.usefixtures("empty_lists")
Run = Callable[..., tuple[int, str, str]]
REPO = "me/Small-0.5B-GGUF"
DOWNLOAD = f"-hfd {REPO}:Q8_0"


@pytest.fixture
def target(tmp_path: Path) -> Path:
    (tmp_path / "models").mkdir()
    return Path(shutil.copy(TARGET, tmp_path / "models" / "Big-7B-Q4_K_M.gguf"))


def cached(tmp_path: Path) -> Path:
    """The draft in the hub's cache."""
    snapshot = tmp_path / "hub" / f"models--{REPO.replace('/', '--')}" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    return Path(shutil.copy(DRAFT, snapshot / "Small-0.5B-Q8_0.gguf"))


def listed(**target: str) -> None:
    add(Pair(name="mine", target=ModelRef(**target), draft=ModelRef(repo=REPO, quant="Q8_0")))


@pytest.mark.parametrize("of", [{"repo": "me/Big-7B-GGUF"}, {"repo": "me/all-GGUF", "file": "big-7b-Q8_0.gguf"}])
def test_a_draft_in_the_cache_is_used(of: dict[str, str], target: Path, tmp_path: Path, run: Run) -> None:
    listed(**of)
    draft = cached(tmp_path)
    code, text, err = run("-m", target, *LINE)
    assert code == 0 and f"+ draft {draft.name}" in err
    assert f"{draft.name} is the draft of this target in the pair mine and drafts for it; -md none does without" in err
    code, alone, err = run("-m", target, *LINE, "-md", "none")
    assert (code, alone) == (0, text) and "pair mine" not in err and DOWNLOAD not in err


def test_one_that_is_not_here_is_named(target: Path, run: Run) -> None:
    listed(repo="me/Big-7B-GGUF")
    code, _, err = run("-m", target, *LINE)
    assert code == 0 and f"has a draft for this target (duo pairs); to download it, add {DOWNLOAD}\n" in err
    assert run("-m", TARGET, *LINE)[2].count("to download it") == 0


def test_a_pair_of_files(target: Path, tmp_path: Path) -> None:
    add(Pair(name="files", target=ModelRef(file=str(target)), draft=ModelRef(file=str(DRAFT))))
    assert find(str(target)).path == str(DRAFT)
    assert find(str(TARGET)).path is None, "the demo pair is for those who name no file"


def test_a_draft_that_does_not_suit_is_not_taken(target: Path, tmp_path: Path) -> None:
    listed(repo="me/Big-7B-GGUF")
    shutil.copy(TARGET, cached(tmp_path))  # as large as the target
    found = find(str(target))
    assert found.path is None and found.tip == ""


def test_a_draft_of_nearly_half_the_target_is_taken(target: Path, tmp_path: Path) -> None:
    """As in the pair that benchmarks measure: 0.44."""
    listed(repo="me/Big-7B-GGUF")
    draft = cached(tmp_path)
    os.truncate(draft, int(0.44 * target.stat().st_size))
    assert find(str(target)).path == str(draft)


def test_a_broken_list_or_cache_stops_no_text(target: Path, run: Run, empty_lists: Path) -> None:
    listed(repo="me/Big-7B-GGUF")
    add(Pair(name="nobodys", target=ModelRef(file="~no-such-user/x.gguf"), draft=ModelRef(file="y.gguf")))
    refs = empty_lists / f"models--{REPO.replace('/', '--')}" / "refs"
    refs.mkdir(parents=True)
    (refs / "main").write_bytes(b"\xff\xfe")
    code, _, err = run("-m", target, *LINE)
    assert code == 0 and DOWNLOAD in err
    user_file().write_text("pairs: [")
    code, _, err = run("-m", target, *LINE)
    assert code == 0 and DOWNLOAD not in err


def test_names_that_many_models_have_say_nothing(tmp_path: Path) -> None:
    add(Pair(name="x", target=ModelRef(repo="me/all", file="ggml-model-Q8_0.gguf"), draft=ModelRef(repo=REPO)))
    add(Pair(name="y", target=ModelRef(repo="me/all", file="*Q8_0*"), draft=ModelRef(repo=REPO)))
    assert find(shutil.copy(TARGET, tmp_path / "ggml-model-Q4_0.gguf")).tip == ""


def test_targets_of_the_list_that_comes_with_duo(tmp_path: Path) -> None:
    target = Path(shutil.copy(TARGET, tmp_path / "Llama-3.3-70B-Instruct-Q2_K-00001-of-00002.gguf"))
    assert find(str(target)).tip == "-hfd bartowski/Llama-3.2-1B-Instruct-GGUF:Q8_0"
    target = target.rename(tmp_path / "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf")
    assert find(str(target)).tip == "-hfd Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF:Q4_K_M"
