"""Downloads, against a hub on this machine that can be told to misbehave."""

import hashlib
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import HANG_S
from hub_server import COMMIT, DRAFT, PARTS, REPO, SPLIT, TARGET, FakeHub
from waits import wait_until

from duo import DuoError
from duo.models.hub import download as hub_download
from duo.models.hub.repository import Hub, HubModel, parse
from duo.models.hub.settings import HubSettings

CHUNK = 100_000


@pytest.fixture
def hub(fake: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    # No pause before a broken download goes on, and small files come in several pieces as large ones do.
    no_pause = SimpleNamespace(**{**vars(time), "sleep": lambda _s: None})
    monkeypatch.setattr("huggingface_hub.file_download.time", no_pause)
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", CHUNK)
    return Hub(endpoint=fake.url, token=None, cache=tmp_path / "cache", offline=False)


def fetched(hub: Hub, text: str, file: str | None = None) -> Path:
    return hub.fetch(parse(text, file))


def error_of(hub: Hub, text: str, file: str | None = None) -> str:
    with pytest.raises(DuoError) as e:
        fetched(hub, text, file)
    assert "\n" not in str(e.value)
    return str(e.value)


def test_the_cache_is_where_llama_cpp_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order of common/hf-cache.cpp."""
    folders = (
        ("HOME", Path(".cache/huggingface/hub")),
        ("XDG_CACHE_HOME", Path("huggingface/hub")),
        ("HF_HOME", Path("hub")),
        ("HUGGINGFACE_HUB_CACHE", Path()),
        ("HF_HUB_CACHE", Path()),
        ("LLAMA_CACHE", Path()),
    )
    for name, _ in folders:
        monkeypatch.delenv(name, raising=False)
    for name, inside in folders:
        monkeypatch.setenv(name, str(tmp_path / name))
        assert HubSettings().cache == tmp_path / name / inside
    monkeypatch.setenv("LLAMA_CACHE", "")
    assert HubSettings().cache == tmp_path / "HF_HUB_CACHE"
    monkeypatch.setenv("LLAMA_CACHE", "~/models")
    assert HubSettings().cache == tmp_path / "HOME/models"


# ---- what comes


def test_a_quantisation_is_downloaded_into_the_hubs_own_cache(hub: Hub) -> None:
    path = fetched(hub, f"{REPO}:Q2_K")
    assert path == hub.cache / "models--someone--Tales-GGUF" / "snapshots" / COMMIT / "tales-Q2_K.gguf"
    assert path.read_bytes() == DRAFT
    from huggingface_hub import try_to_load_from_cache

    assert try_to_load_from_cache(REPO, "tales-Q2_K.gguf", cache_dir=hub.cache) == str(path)  # under "main" too


def test_without_a_quantisation_the_default_one_comes_and_no_companion(hub: Hub) -> None:
    assert fetched(hub, REPO).read_bytes() == TARGET


def test_cached_files_are_not_downloaded_again(hub: Hub, fake: FakeHub) -> None:
    first = fetched(hub, REPO)
    n_sent = fake.n_sent
    assert fetched(hub, REPO) == first
    assert fake.n_sent == n_sent


@pytest.mark.parametrize("size", [0, 1000, len(DRAFT) + 1])
def test_a_file_that_was_damaged_comes_again(hub: Hub, size: int) -> None:
    path = fetched(hub, f"{REPO}:Q2_K")
    with path.resolve().open("r+b") as f:
        f.truncate(size)
    notes: list[str] = []
    assert fetched(replace(hub, note=notes.append), f"{REPO}:Q2_K").read_bytes() == DRAFT
    assert notes == [
        f"tales-Q2_K.gguf has {size} bytes in the cache and {len(DRAFT)} on the hub; it is downloaded again"
    ]


def test_a_file_can_be_named_and_a_pattern_fits_one(hub: Hub) -> None:
    assert fetched(hub, REPO, "tales-Q2_K.gguf").read_bytes() == DRAFT
    assert fetched(hub, REPO, "*Q2_K.gguf").read_bytes() == DRAFT
    assert error_of(hub, REPO, "tales-*.gguf").startswith("tales-*.gguf matches 3 files")


def test_a_split_model_comes_whole(hub: Hub) -> None:
    path = fetched(hub, f"{SPLIT}:q8_0")
    assert path.name == "long-Q8_0-00001-of-00003.gguf"
    assert {p.name: p.read_bytes() for p in path.parent.iterdir()} == {
        name.removeprefix("Q8_0/"): data for name, data in PARTS.items()
    }


def test_a_split_model_with_a_missing_part_is_not_downloaded(hub: Hub, fake: FakeHub) -> None:
    del fake.repos[SPLIT]["Q8_0/long-Q8_0-00002-of-00003.gguf"]
    assert "the model has 3 parts, but Q8_0/long-Q8_0-00002-of-00003.gguf is missing" in error_of(hub, SPLIT)
    assert fake.n_sent == 0


def test_files_in_storage_elsewhere_come_without_the_token_going_there(hub: Hub, fake: FakeHub) -> None:
    fake.storage, fake.cut = True, [2_000_000]
    fake.gated.add(REPO)
    assert fetched(replace(hub, token=fake.token), REPO).read_bytes() == TARGET
    assert fake.ranges == ["", "bytes=2000000-"]
    assert fake.tokens_at_storage == {""}


# ---- what breaks


def test_a_cut_connection_is_taken_up_where_it_broke(hub: Hub, fake: FakeHub) -> None:
    fake.cut = [1_000_000, 2_500_000]
    assert fetched(hub, REPO).read_bytes() == TARGET
    assert fake.ranges == ["", "bytes=1000000-", "bytes=3500000-"]
    assert fake.n_sent == len(TARGET)


@pytest.mark.full
def test_a_download_that_was_ended_goes_on_the_next_time(hub: Hub, fake: FakeHub) -> None:
    fake.chunk_s = 0.01
    script = (
        "import sys, huggingface_hub.constants as c; from pathlib import Path\n"
        "from duo.models.hub.repository import Hub, parse\n"
        f"c.DOWNLOAD_CHUNK_SIZE = {CHUNK}\n"
        "Hub(endpoint=sys.argv[1], cache=Path(sys.argv[2])).fetch(parse(sys.argv[3]))"
    )
    child = subprocess.Popen([sys.executable, "-c", script, fake.url, str(hub.cache), REPO])
    try:
        wait_until(lambda: child.poll() is not None or fake.n_sent >= 1_000_000)
        assert fake.n_sent >= 1_000_000
    finally:
        child.kill()
        child.wait(HANG_S)
    assert len(fake.ranges) == 1
    fake.chunk_s, fake.ranges[:] = 0, []
    assert fetched(hub, REPO).read_bytes() == TARGET
    assert len(fake.ranges) == 1
    assert int(fake.ranges[0].removeprefix("bytes=").rstrip("-")) > 0


def test_a_file_of_another_size_than_announced_is_not_kept(hub: Hub, fake: FakeHub) -> None:
    fake.wrong_size = 1000
    assert error_of(hub, REPO) == (
        f"tales-Q4_K_M.gguf of {REPO} did not have the {len(TARGET)} bytes that the server announced; try again"
    )
    fake.wrong_size = 0
    assert fetched(hub, REPO).read_bytes() == TARGET


def test_a_slow_hub_is_waited_for(hub: Hub, fake: FakeHub) -> None:
    fake.chunk_s = 0.002
    assert fetched(hub, f"{REPO}:Q2_K").read_bytes() == DRAFT


def test_too_many_requests_name_the_wait(hub: Hub, fake: FakeHub) -> None:
    fake.busy = 1
    assert error_of(hub, REPO) == (
        f"{fake.url} accepts no more requests for now (429); try again in 7 seconds, or set HF_TOKEN"
    )
    assert fetched(hub, REPO).is_file()


def test_a_full_disk_is_told_before_anything_is_downloaded(
    hub: Hub, fake: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_download.shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    assert f"{REPO} needs 8 MB more on the disk of {hub.cache}, but only 0 MB are free" in error_of(hub, REPO)
    assert fake.n_sent == 0


def test_a_partial_download_of_another_file_does_not_count_as_free_space(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs = hub.cache / "models--someone--Tales-GGUF" / "blobs"
    blobs.mkdir(parents=True)
    monkeypatch.setattr(hub_download.shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    (blobs / f"{'0' * 64}.part").write_bytes(TARGET)
    assert "needs 8 MB more" in error_of(hub, REPO)
    (blobs / f"{hashlib.sha256(TARGET).hexdigest()}.part").write_bytes(TARGET[:-500])
    assert fetched(hub, REPO).read_bytes() == TARGET


def test_only_headers_are_read_from_a_hub_that_ignores_ranges(
    hub: Hub, fake: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_download, "HEAD_FIRST", 250_000)
    fake.no_ranges, fake.chunk_s = True, 0.001
    path = hub.heads(parse(REPO), tmp_path / "heads")
    assert path.stat().st_size == len(TARGET)
    assert path.read_bytes()[:250_001] == TARGET[:250_000] + b"\0"
    assert fake.n_sent < len(TARGET) / 2


# ---- what may not be had


def test_a_gated_repository_says_how_to_get_in(hub: Hub, fake: FakeHub) -> None:
    fake.gated.add(REPO)
    assert error_of(hub, REPO) == (
        f"{REPO} is gated; ask for access at {fake.url}/{REPO} and set HF_TOKEN to a token of that account"
    )
    assert fetched(replace(hub, token=fake.token), REPO).read_bytes() == TARGET
    assert fake.token in fake.tokens


def test_a_wrong_token_is_named(hub: Hub, fake: FakeHub) -> None:
    assert (
        error_of(replace(hub, token="hf_wrong"), REPO)
        == f"access to {fake.url}/{REPO} is denied (401); check the token (HF_TOKEN or --hf-token)"
    )


def test_an_unknown_repository_is_named(hub: Hub, fake: FakeHub) -> None:
    without = error_of(hub, "someone/Nothing")
    assert without == (
        f"there is no repository someone/Nothing at {fake.url}; check the name, or set HF_TOKEN if it is private"
    )
    with_token = error_of(replace(hub, token=fake.token), "someone/Nothing")
    assert with_token == f"there is no repository someone/Nothing at {fake.url} for this token; check the name"


def test_an_unknown_quantisation_names_the_existing_ones(hub: Hub, fake: FakeHub) -> None:
    assert error_of(hub, f"{REPO}:Q5_K_M") == f"there is no Q5_K_M in {fake.url}/{REPO}; choose from Q2_K, Q4_K_M, Q8_0"
    assert error_of(hub, REPO, "tails.gguf").startswith(
        f"there is no file tails.gguf in {fake.url}/{REPO}; choose from"
    )


def test_a_repository_without_models_is_refused(hub: Hub, fake: FakeHub) -> None:
    fake.repos["someone/Texts"] = {"README.md": b"x"}
    assert error_of(hub, "someone/Texts") == (
        f"{fake.url}/someone/Texts has no GGUF model; choose a repository with GGUF files"
    )


@pytest.mark.parametrize("text", ["tales", "a/b/c", "a/b:", "https://huggingface.co/a/b", "", "a/b:Q4 K"])
def test_invalid_repository_names_are_refused(text: str) -> None:
    with pytest.raises(DuoError, match="is not a repository; write it as user/repo"):
        parse(text)


def test_a_source_is_read_as_llama_cpp_reads_it() -> None:
    assert parse("a/b") == HubModel("a/b", None, None)
    assert parse("a/b.c-GGUF:IQ4_XS") == HubModel("a/b.c-GGUF", "IQ4_XS", None)


# ---- without a network


def nowhere(hub: Hub) -> Hub:
    return replace(hub, endpoint="http://127.0.0.1:9")  # discard: nobody listens there


def test_without_a_network_the_cache_is_used(hub: Hub) -> None:
    path = fetched(hub, f"{REPO}:Q2_K")
    notes: list[str] = []
    gone = replace(nowhere(hub), note=notes.append)
    assert fetched(gone, f"{REPO}:Q2_K") == path
    assert notes == [f"http://127.0.0.1:9 cannot be reached; tales-Q2_K.gguf of {REPO} is taken from the cache"]


def test_without_a_network_the_cached_files_are_named(hub: Hub) -> None:
    message = error_of(nowhere(hub), SPLIT)
    assert message.startswith("http://127.0.0.1:9 cannot be reached (")
    assert message.endswith(f"has no {SPLIT} and no other model; check the network")
    fetched(hub, REPO)
    assert error_of(nowhere(hub), SPLIT).endswith(f"has no {SPLIT}, but {REPO}; check the network")


def test_offline_asks_nobody(hub: Hub, fake: FakeHub) -> None:
    path = fetched(hub, SPLIT)
    n_requests = fake.requests.total()
    offline = replace(hub, offline=True)
    assert fetched(offline, f"{SPLIT}:Q8_0") == path
    assert "--offline once to download it" in error_of(offline, REPO)
    assert error_of(offline, f"{SPLIT}:Q4_0").startswith("there is no Q4_0 in the cache")
    path.with_name("long-Q8_0-00003-of-00003.gguf").unlink()
    assert "long-Q8_0-00003-of-00003.gguf is missing" in error_of(offline, SPLIT)
    assert fake.requests.total() == n_requests
