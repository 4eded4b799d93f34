"""Models from a hub as users ask for them: from_pretrained, -hf and -hfd."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import HANG_S
from hub_server import ENVIRONMENT, REPO, FakeHub, serving, tales

from duo import Duo, DuoError
from duo.cli.main import main


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    for name in ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)
    with serving(tales()) as fake:
        yield fake


def test_from_pretrained_is_spelled_as_in_llama_cpp(
    fake: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", fake.url)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    with Duo.from_pretrained(
        repo_id=REPO, filename="*Q4_K_M.gguf", draft_repo_id=f"{REPO}:Q2_K", n_ctx=256, verbose=False
    ) as d:
        assert d.draft is not None
        assert Path(d.target.path).name == "tales-Q4_K_M.gguf"
        assert Path(d.draft.path).name == "tales-Q2_K.gguf"
        assert d.generate("Once", max_tokens=2).text
    with pytest.raises(DuoError, match=r"there is no Q3_K in .*choose from"):
        Duo.from_pretrained(f"{REPO}:Q3_K")


def run_duo(fake: FakeHub, cache: Path, *args: str, **env: str) -> "subprocess.CompletedProcess[str]":
    environment: dict[str, Any] = {**os.environ, "HF_ENDPOINT": fake.url, "HF_HUB_CACHE": str(cache), **env}
    return subprocess.run(
        [sys.executable, "-m", "duo", *args], env=environment, stdin=subprocess.DEVNULL, capture_output=True,
        text=True, timeout=HANG_S, check=False,
    )  # fmt: skip


def test_the_program_downloads_and_runs_both_models(fake: FakeHub, tmp_path: Path) -> None:
    fake.gated.add(REPO)
    models = ("-hf", REPO, "-hfd", REPO, "--hf-file-draft", "tales-Q2_K.gguf")
    args = (*models, "-p", "Once", "-n", "3", "-c", "256", "--temp", "0")
    r = run_duo(fake, tmp_path, *args)
    assert (r.returncode, r.stdout) == (1, "")
    assert "is gated" in r.stderr and r.stderr.count("\n") == 1
    r = run_duo(fake, tmp_path, *args, HF_TOKEN=fake.token)
    assert r.returncode == 0, r.stderr
    assert "tales-Q4_K_M.gguf" in r.stderr and "draft tales-Q2_K.gguf" in r.stderr
    n_requests = fake.requests.total()
    again = run_duo(fake, tmp_path, *args, "--offline")
    assert (again.returncode, again.stdout) == (0, r.stdout)
    assert fake.requests.total() == n_requests


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("-m", "a.gguf", "-hf", "a/b"), "-m and -hf both name the same model; choose one"),
        (("-md", "a.gguf", "-hfd", "a/b"), "-md and -hfd both name the same model; choose one"),
        (("--pair", "demo", "-m", "a.gguf"), "-m and --pair both name the same model; choose one"),
        (("-m", "a.gguf", "--hf-file", "b.gguf"), "--hf-file is a file in a repository and none was given; give it"),
        (("-hf", "nonsense"), "'nonsense' (-hf) is no repository; write it as user/repo or user/repo:quant"),
    ],
)
def test_models_that_are_named_twice_or_wrongly_are_refused(
    args: tuple[str, ...], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main([*args, "-p", "x"]) == 1
    assert f"duo: {message}" in capfd.readouterr().err


def test_the_command_line_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    monkeypatch.setenv("LLAMA_ARG_MODEL", "nowhere.gguf")
    monkeypatch.setenv("LLAMA_ARG_SPEC_DRAFT_HF_REPO", "no/where")
    assert main(["--pair", "demo", "-p", "Once", "-n", "2", "-c", "256"]) == 0
    assert "duo-demo-target-q8_0.gguf" in capfd.readouterr().err


def test_check_downloads_headers_only(fake: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("duo.hub_download.HEAD_FIRST", 400_000)
    monkeypatch.setenv("HF_ENDPOINT", fake.url)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    fake.storage = True
    assert main(["check", f"{REPO}:Q4_K_M", f"{REPO}:Q2_K"]) == 0
    assert fake.n_sent == 800_000
    assert main(["check", f"{REPO}:Q5_K_M", f"{REPO}:Q2_K"]) == 1
    assert list(tmp_path.iterdir()) == []
    Duo.from_pretrained(f"{REPO}:Q2_K", n_ctx=64).close()
    n_sent = fake.n_sent
    assert main(["check", f"{REPO}:Q4_K_M", f"{REPO}:Q2_K"]) == 0
    assert fake.n_sent == n_sent + 400_000  # the draft is there
    assert main(["check", f"{REPO}:Q2_K", f"{REPO}:Q2_K", "--offline"]) == 0
