"""Models from a hub as users ask for them: from_pretrained, -hf and -hfd; and what a hub may not answer."""

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hub_server import COMMIT, REPO, FakeHub, run_duo

from duo import Duo, DuoError
from duo.cli.main import main
from duo.models.hub.repository import Hub, parse


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
    with pytest.raises(DuoError, match="draft_filename was given without a repository"):
        Duo.from_pretrained(REPO, draft_filename="tales-Q2_K.gguf")


@pytest.mark.daily
@pytest.mark.full
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


def test_an_invalid_endpoint_is_reported_in_one_sentence(fake: FakeHub, tmp_path: Path) -> None:
    r = run_duo(fake, tmp_path, "-hf", REPO, "-p", "Once", HF_ENDPOINT="http://[::1")
    assert (r.returncode, r.stderr.count("\n")) == (1, 1)
    assert "HF_ENDPOINT is 'http://[::1', which is not a web address" in r.stderr


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("-m", "a.gguf", "-hf", "a/b"), "-m and -hf both name the same model; choose one"),
        (("-md", "a.gguf", "-hfd", "a/b"), "-md and -hfd both name the same model; choose one"),
        (("--pair", "demo", "-m", "a.gguf"), "-m and --pair both name the same model; choose one"),
        (
            ("-m", "a.gguf", "--hf-file", "b.gguf"),
            "--hf-file names a file in a repository, but no repository was given; give it",
        ),
        (("-hf", "nonsense"), "'nonsense' (-hf) is not a repository; write it as user/repo or user/repo:quant"),
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
    monkeypatch.setattr("duo.models.hub.download.HEAD_FIRST", 400_000)
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


def test_check_shows_repository_names_and_takes_a_token(
    fake: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", fake.url)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    fake.repos |= {
        "a/broken-GGUF": {"b-Q4_K_M.gguf": b"GGUF"},
        "a/long-GGUF": {"x" * 260 + "-Q4_K_M.gguf": b"GGUF"},
        "a/gated-GGUF": fake.repos[REPO],
    }
    fake.gated.add("a/gated-GGUF")
    for repo, found in (
        ("a/broken-GGUF", "duo: a/broken-GGUF/b-Q4_K_M.gguf has a truncated or corrupt header"),
        ("a/long-GGUF", f"duo: a/long-GGUF could not be written to {tempfile.gettempdir()} (file name too long); "),
    ):
        assert main(["check", REPO, repo]) == 1
        said = "".join(capfd.readouterr())
        assert found in said and "duo-check-" not in said
    assert main(["check", "a/gated-GGUF", f"{REPO}:Q2_K"]) == 1
    assert "is gated" in capfd.readouterr().err
    assert main(["check", "a/gated-GGUF", f"{REPO}:Q2_K", "--hf-token", fake.token, "-otd", "ffn_up=CPU"]) == 0


def test_a_cache_that_cannot_be_written_is_named(fake: FakeHub, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    r = run_duo(fake, tmp_path / "cache", "-hf", REPO, "-p", "Once")
    assert (r.returncode, r.stderr) == (
        1,
        f"duo: {REPO} could not be written to {tmp_path / 'cache'} (not a directory); check that folder, or choose "
        "another\n",
    )


# ---- what a hub may not do


@pytest.fixture
def hub(fake: FakeHub, tmp_path: Path) -> Hub:
    return Hub(endpoint=fake.url, token=None, cache=tmp_path / "cache", offline=False)


def error_of(hub: Hub) -> str:
    with pytest.raises(DuoError) as e:
        hub.fetch(parse(REPO))
    assert "\n" not in str(e.value)
    return str(e.value)


def listed(*names: object, size: object = 10, sha: str = COMMIT) -> bytes:
    return json.dumps({"id": REPO, "sha": sha, "siblings": [{"rfilename": n, "size": size} for n in names]}).encode()


@pytest.mark.parametrize(
    "name",
    ["../x.gguf", "/tmp/x.gguf", "a/../../x.gguf", "a\\..\\x.gguf", "C:x.gguf", "a//x.gguf", "./x.gguf", "x\0.gguf"],
)
def test_files_outside_the_repositorys_folder_are_ignored(hub: Hub, fake: FakeHub, tmp_path: Path, name: str) -> None:
    fake.answer = listed(name)
    assert error_of(hub).endswith("has no GGUF model; choose a repository with GGUF files")
    with pytest.raises(DuoError, match="has no GGUF model"):
        hub.heads(parse(REPO), tmp_path / "a" / "b")
    assert list(tmp_path.rglob("*.gguf")) == []


@pytest.mark.full
@pytest.mark.parametrize(
    "answer",
    [
        b"<html>Log in</html>", b"[" * 100_000, listed("x.gguf", size="big"), listed("x.gguf", sha="../../x"),
        *(pytest.param(a, marks=pytest.mark.daily) for a in [
            b"null", listed(["a"]), b'{"id": "a/b", "siblings": [3]}', b"[]", b"{}", b"3", b"\xff", listed(None),
            listed("x.gguf", size=-1), b'{"id": "a/b", "siblings": 3}',
        ]),
    ],
)  # fmt: skip
def test_an_invalid_file_list_counts_as_no_network(hub: Hub, fake: FakeHub, answer: bytes) -> None:
    fake.answer = answer
    message = error_of(hub)
    assert message.startswith(f"{fake.url} did not answer with a list of files (a login page?), and the cache")
    assert message.endswith("; check the network")
    fake.answer = None
    path = hub.fetch(parse(REPO))
    fake.answer = answer
    assert hub.fetch(parse(REPO)) == path


def test_data_cannot_be_named_as_a_path(hub: Hub, fake: FakeHub) -> None:
    fake.etag = "../../x"
    assert "sends an invalid file name for " in error_of(hub)
    assert fake.n_sent == 0


@pytest.mark.parametrize(
    "endpoint",
    ["http://[::1", "http://x:99999999", "http://x:y", "http://..", "http://:80", "http://[zz]", "http://x?y", "x"],
)
def test_invalid_addresses_are_refused(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    with pytest.raises(DuoError, match=r"which is not a web address; write it as https://huggingface.co"):
        Hub(endpoint=endpoint)
    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    with pytest.raises(DuoError, match=r"HF_ENDPOINT is .* which is not a web address"):
        Hub()
