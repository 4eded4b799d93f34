"""Folders that may not be entered, and a user without a home: what needs none of them works, and the rest is one
sentence."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import needs_kernels
from rights import of_an_ordinary_user

from duo import Duo, DuoError
from duo.cli.chat_history import ChatHistory, history_file
from duo.gguf_tools.demo_target import demo_target
from duo.models import pairs
from duo.models.demo import demo_pair
from duo.models.hub.settings import HubSettings
from duo.models.listed_drafts import listed
from duo.models.pairs import ModelRef, Pair
from duo.options.model import ModelOptions
from duo.options.validate import engine_options
from duo.placement import packed
from duo.support.cache_folder import cache_folder
from duo.support.home import NOWHERE, below_home
from duo.support.json_cache import recall, remember

Run = Callable[..., tuple[int, str, str]]
TARGET, DRAFT = demo_pair()


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "closed"
    folder.mkdir()
    folder.chmod(0)
    with of_an_ordinary_user():
        yield folder
    folder.chmod(0o700)


@pytest.fixture
def all_closed(closed: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of another user: caches and configuration are in the folder."""
    monkeypatch.setattr("duo.models.pairs.user_config_path", lambda name: closed / "config" / name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(closed / "cache"))
    monkeypatch.setenv("LLAMA_CACHE", str(closed / "hub"))
    return closed


# ---- folders that may not be entered


@needs_kernels
def test_a_text_needs_neither_cache_nor_configuration(all_closed: Path) -> None:
    with Duo(TARGET, n_ctx=64, cpu_kernels="duo") as d:
        assert d.generate("Once", max_tokens=2).text


def test_a_file_that_has_no_room_for_another_ending(tmp_path: Path) -> None:
    model = shutil.copy(TARGET, tmp_path / f"{'m' * 245}.gguf")
    assert packed.find(ModelOptions.of(engine_options({}), "target", str(model))) is None


def test_pairs_in_a_closed_folder(all_closed: Path) -> None:
    assert "demo" in pairs.entries()
    assert listed(TARGET) == []
    with pytest.raises(DuoError, match=r"cannot be written \(Permission denied\)"):
        pairs.add(Pair(name="mine", target=ModelRef(file="a.gguf"), draft=ModelRef(file="b.gguf")))


def test_a_listed_draft_in_a_closed_folder_is_none(closed: Path, empty_lists: Path) -> None:
    pairs.add(Pair(name="mine", target=ModelRef(file=str(TARGET)), draft=ModelRef(file=str(closed / "d.gguf"))))
    assert listed(TARGET) == []


def test_the_hubs_cache_in_a_closed_folder(all_closed: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for args in (("-cl",), ("-hf", "a/b:Q4_0", "--offline", "-p", "x")):
        code, out, err = run(*args)
        assert (code, out, err.count("\n")) == (1, "", 1)
        assert f"the cache {all_closed / 'hub'}" in err and "cannot be read (Permission denied)" in err

    def of_another_user() -> str:
        raise PermissionError(13, "Permission denied", "/home/other/.cache/huggingface/token")

    monkeypatch.setattr("huggingface_hub.get_token", of_another_user)
    assert HubSettings().token is None


def test_a_folder_of_models_is_served_without_the_cache(
    all_closed: Path, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def listens(_: object) -> None:
        raise DuoError("all models are known")

    monkeypatch.setattr("duo.server.listening.listeners", listens)
    for folder, why in (
        (all_closed, f"{all_closed} (--models-dir) cannot be read (Permission denied)"),
        (all_closed / "models", "is no folder"),
        (tmp_path, "all models are known"),
    ):
        code, _, err = run("serve", "--models-dir", folder)
        assert code == 1 and why in err and "cannot write" not in err
    assert f"the cache {all_closed / 'hub'} cannot be read" in err


def test_the_demo_target_in_a_closed_folder(all_closed: Path) -> None:
    with pytest.raises(DuoError, match=r"the cache .* cannot be used \(Permission denied\)"):
        demo_target()


@pytest.mark.parametrize("args", [
    ("pack", TARGET, "-o", "F"), ("make-draft", "-m", TARGET, "-o", "F"), ("bench", "--json-file", "F"),
    ("-p", "x", "--lookup-cache-dynamic", "F"), ("serve", "--slot-save-path", "F"),
    ("dev", "random-model", TARGET, "-o", "F"), ("dev", "widen", TARGET, "-o", "F", "--n-layer", "8"),
], ids=lambda args: " ".join(map(str, args[:2])))  # fmt: skip
def test_files_that_are_to_be_in_a_closed_folder(args: tuple[object, ...], closed: Path, run: Run) -> None:
    code, out, err = run(*(closed / "below" / "file" if a == "F" else a for a in args))
    assert (code, out) == (1, "") and err.splitlines()[-1].startswith("duo: ")
    assert str(closed) in err and "cannot write the output" not in err and "Traceback" not in err


def test_an_error_of_a_file_names_it(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(**_: object) -> None:
        raise PermissionError(13, "Permission denied", b"/home/other/x")

    monkeypatch.setattr("duo.cli.commands.devices.devices.callback", fails)
    said = "duo: /home/other/x cannot be used (Permission denied); check the path and its permissions\n"
    assert run("devices") == (1, "", said)


# ---- no home


@pytest.mark.parametrize("said", [RuntimeError("no home"), Path("~/.cache/duo"), Path("~nobody-here/duo")])
def test_nothing_is_kept_for_a_user_without_a_home(
    said: Path | RuntimeError, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def place(*_: object) -> Path:
        if isinstance(said, RuntimeError):
            raise said
        return said

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os.path, "expanduser", os.fspath)
    for name in ("platformdirs.user_cache_path", "platformdirs.user_state_path", "duo.models.pairs.user_config_path"):
        monkeypatch.setattr(name, place)
    assert not remember(cache_folder() / "x.json", "a", 1) and recall(cache_folder() / "x.json") == {}
    ChatHistory(history_file()).store_string("x")
    with pytest.raises(DuoError, match="cannot be written"):
        pairs.add(Pair(name="mine", target=ModelRef(file="a.gguf"), draft=ModelRef(file="b.gguf")))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_below_the_home_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert below_home(lambda: Path("~/x")) == tmp_path / "x" and below_home(lambda: Path("/x/~y")) == Path("/x/~y")
    assert not os.path.lexists(NOWHERE)


def test_a_cache_in_an_unknown_home_is_one_sentence(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLAMA_CACHE", "~no-such-user/x")
    why = "is in an unknown home folder; set LLAMA_CACHE or HF_HOME to a whole path"
    said = f"duo: the hub's cache ~no-such-user/x {why}\n"
    assert run("-cl") == (1, "", said)
    assert run("-hf", "a/b", "-p", "x") == (1, "", said)
    assert listed(Path("qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"))[0].path is None, "nobody asked for the cache"
