"""Builds that another clone uses again: what is kept, and what `make` does with it."""

import os
import shutil
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import pytest
from conftest import HANG_S

ROOT = Path(__file__).parents[1]
if not (ROOT / "tools" / "build_cache.py").is_file():
    pytest.skip("no sources", allow_module_level=True)
sys.path.insert(0, str(ROOT / "tools"))
import build_cache  # type: ignore[import-not-found]  # noqa: E402
import build_facts  # type: ignore[import-not-found]  # noqa: E402
import install_duo  # type: ignore[import-not-found]  # noqa: E402
import install_llama  # type: ignore[import-not-found]  # noqa: E402
from build_cache import BuildCache  # noqa: E402

WORDS = ("OFF", "false", "No", "1", "on", "YES")
PACKAGE = "llama-cpp-python==1.2"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BuildCache:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("DUO_BUILD_CACHE", raising=False)
    return BuildCache("llama")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "x.whl"
    path.write_bytes(b"a build" * 100)
    return path


# ---- what is kept


def test_a_file_is_found_by_its_facts(cache: BuildCache, file: Path, tmp_path: Path) -> None:
    assert cache.find(["a", "b"]) is None
    assert cache.keep(["a", "b"], file) == ""
    found = cache.find(["a", "b"])
    assert found is not None and found.is_relative_to(tmp_path / "cache" / "duo" / "builds")
    assert found.name == file.name and found.read_bytes() == file.read_bytes()
    assert cache.find(["a", "c"]) is None and cache.find(["a"]) is None
    assert BuildCache("extension").find(["a", "b"]) is None
    file.write_bytes(b"another")
    assert cache.keep(["a", "b"], file) == ""
    assert found.read_bytes() == b"another" and [f.suffix for f in found.parents[1].iterdir()] == [""]


@pytest.mark.parametrize("damage", ["byte", "end", "sum", "name", "file"])
def test_a_damaged_entry_counts_as_none(damage: str, cache: BuildCache, file: Path) -> None:
    cache.keep(["a"], file)
    found = cache.find(["a"])
    assert found is not None
    data, sums = found.read_bytes(), found.parent / "sha256"
    if damage == "byte":
        found.write_bytes(data[:50] + b"!" + data[51:])
    elif damage == "end":
        found.write_bytes(data[:-1])
    elif damage == "sum":
        sums.write_text("")
    elif damage == "name":
        sums.write_text(sums.read_text().replace(file.name, f"../{file.name}"))
    else:
        found.unlink()
    assert cache.find(["a"]) is None
    assert cache.keep(["a"], file) == "" and cache.find(["a"]) == found


def test_what_was_written_halfway_is_never_found_and_goes(cache: BuildCache, file: Path) -> None:
    cache.keep(["a"], file)
    found = cache.find(["a"])
    assert found is not None
    half = found.parent.with_name(f"{found.parent.name}.0000.part")
    found.parent.rename(half)
    assert cache.find(["a"]) is None
    cache.keep(["b"], file)
    assert half.exists(), "somebody may be writing it"
    os.utime(half, (0, 0))
    cache.keep(["c"], file)
    assert not half.exists()


def test_the_builds_that_were_used_last_stay(cache: BuildCache, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_cache, "N_KEPT", 2)
    for fact in "abc":
        cache.keep([fact], file)
        for i, entry in enumerate(sorted(cache.folder.iterdir(), key=lambda f: f.stat().st_mtime)):
            os.utime(entry, (time.time() - 100 + i,) * 2)
        if fact == "b":
            assert cache.find(["a"]) is not None  # used again
    assert [cache.find([fact]) is not None for fact in "abc"] == [True, False, True]


def test_nothing_is_kept_where_it_cannot_be(file: Path, tmp_path: Path) -> None:
    off = BuildCache("llama", {"DUO_BUILD_CACHE": "off", "XDG_CACHE_HOME": str(tmp_path)})
    assert (off.keep(["a"], file), off.find(["a"]), off.folder) == ("", None, None)
    elsewhere = BuildCache("llama", {"DUO_BUILD_CACHE": str(file)})
    assert f"is not kept in {file}" in elsewhere.keep(["a"], file) and elsewhere.find(["a"]) is None
    words = {word: BuildCache("llama", {"DUO_BUILD_CACHE": word, "XDG_CACHE_HOME": str(tmp_path)}) for word in WORDS}
    assert [c.folder for c in words.values()] == [None] * 3 + [tmp_path / "duo" / "builds"] * 3


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="no owners")
@pytest.mark.parametrize("open_part", ["cache", "builds", "entry", "file", "link", "owner"])
def test_what_others_could_have_written_is_not_used(
    open_part: str, cache: BuildCache, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = os.umask(0)  # whatever it is, what duo makes belongs to its user alone
    try:
        assert (cache.keep(["a"], file), cache.fault) == ("", "")
    finally:
        os.umask(before)
    found = cache.find(["a"])
    assert found is not None
    if open_part == "link":
        found.rename(tmp_path / "other")
        found.symlink_to(tmp_path / "other")
    elif open_part == "owner":
        other = os.geteuid() + 1
        monkeypatch.setattr(os, "geteuid", lambda: other)
        if os.getuid() == 0:  # root's files may be used by everybody
            os.chown(cache.folder, other + 1, -1)
    else:
        parts = {"cache": tmp_path / "cache", "builds": cache.folder, "entry": found.parent, "file": found}
        parts[open_part].chmod(0o775)
    again = BuildCache("llama")
    assert again.find(["a"]) is None
    if open_part in ("cache", "builds", "owner"):
        assert again.folder is None
        assert again.fault.startswith("no build is kept or used again: ") and again.keep(["b"], file) == ""
    if open_part == "cache":
        parts[open_part].chmod(0o1777)  # as /tmp
        assert BuildCache("llama").find(["a"]) == found


def test_an_entry_that_cannot_be_read_counts_as_none(
    cache: BuildCache, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.keep(["a"], file)

    def denied(path: Path, **_: object) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "is_file", denied)
    monkeypatch.setattr(Path, "is_dir", denied)
    assert cache.find(["a"]) is None


def test_two_that_keep_one_build_say_nothing(cache: BuildCache, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Path.rename

    def rename(path: Path, to: Path) -> Path:
        monkeypatch.setattr(Path, "rename", real)
        assert cache.keep(["a"], file) == ""  # the other one is first
        return real(path, to)

    monkeypatch.setattr(Path, "rename", rename)
    assert cache.keep(["a"], file) == "" and cache.find(["a"]) is not None
    gone, stat = cache.folder / "llama-gone", Path.stat
    gone.mkdir()
    monkeypatch.setattr(Path, "stat", lambda path, **k: stat(path / "removed" if path == gone else path, **k))
    assert cache.keep(["b"], file) == ""


# ---- what is installed


class Pip:
    """Notes what is compiled and installed, in place of pip."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folders, self.calls, self.lacking = [], [], 0
        monkeypatch.setattr(install_llama, "built", self._built)
        monkeypatch.setattr(install_llama, "installed", self._installed)
        monkeypatch.setattr(install_llama, "has_backends", self._has_backends)
        self._patch = monkeypatch

    def _built(self, folder: Path, _: str, *options: str) -> Path:
        self.calls.append(" ".join(["compile", *options]))
        self.folders.append(folder)
        wheel = folder / "llama_cpp_python.whl"
        wheel.write_text(str(len(self.calls)))
        return wheel

    def _installed(self, wheel: Path) -> bool:
        self.calls.append(f"install {wheel.read_text()}")
        return True

    def _has_backends(self, *_: str) -> bool:
        self.lacking -= 1
        return self.lacking < 0

    def run(self, *options: str) -> list[str]:
        self._patch.setattr(sys, "argv", ["install_llama.py", PACKAGE, *options])
        self.calls = []
        assert install_llama.main() == 0
        assert not any(folder.exists() for folder in self.folders)
        return self.calls


@pytest.fixture
def pip(cache: BuildCache, monkeypatch: pytest.MonkeyPatch) -> Pip:
    monkeypatch.setenv("CMAKE_ARGS", "-DGGML_RPC=on")
    return Pip(monkeypatch)


SOURCES = "compile --no-binary llama-cpp-python"


def test_a_second_clone_compiles_nothing(pip: Pip, cache: BuildCache, capsys: pytest.CaptureFixture[str]) -> None:
    assert pip.run() == [SOURCES, "install 1"]
    assert pip.run() == ["install 1"]
    assert capsys.readouterr().out.splitlines()[-1].endswith("DUO_BUILD_CACHE=off compiles it)")
    (wheel,) = cache.folder.rglob("*.whl")
    wheel.write_text("x")
    assert pip.run() == [SOURCES, "install 1"]
    pip.lacking = 1  # it cannot be loaded: a library of the system has gone
    assert pip.run() == ["install 1", SOURCES, "install 2"]
    assert pip.run() == ["install 2"]
    assert len(set(pip.folders)) == len(pip.folders) == 3


def test_a_llama_whose_amx_crashes_is_one_that_was_compiled_here(pip: Pip, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUO_BUILD_CACHE", "off")
    assert pip.run() == ["compile", "install 1"]  # perhaps from an index
    assert pip.run("--again") == [SOURCES, "install 1"]
    monkeypatch.delenv("DUO_BUILD_CACHE")
    assert pip.run("--again") == [SOURCES, "install 1"]
    assert pip.run("--again") == pip.run() == ["install 1"]


def test_the_cache_can_be_off(pip: Pip, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUO_BUILD_CACHE", "off")
    assert pip.run() == pip.run() == ["compile", "install 1"]
    pip.lacking = 1  # a wheel of an index has no such backend
    assert pip.run() == ["compile", "install 1", SOURCES, "install 3"]
    monkeypatch.delenv("DUO_BUILD_CACHE")
    monkeypatch.setenv("CMAKE_ARGS", "-DGGML_SYCL=on")  # nothing is known about it
    assert pip.run() == pip.run() == ["compile", "install 1"]


def test_the_extension_is_compiled_once(cache: BuildCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[str, bytes, bool]] = []

    def run(command: list[str], **_: object) -> "subprocess.CompletedProcess[bytes]":
        path = next(str(word).rpartition("=")[2] for word in command if "DUO_EXTENSION=" in str(word))
        given.append((Path(path).name, Path(path).read_bytes() if path else b"", "--no-compile" in command))
        return subprocess.CompletedProcess(command, 0)

    compiled = tmp_path / "duo" / f"_core{sysconfig.get_config_var('EXT_SUFFIX')}"
    compiled.parent.mkdir()
    compiled.write_bytes(b"code")
    monkeypatch.setattr(sys, "argv", ["install_duo.py", "build/x"])
    monkeypatch.setattr(build_facts, "_output", lambda *_: b"macros")
    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path))
    for sources in (["cpu.cmake"], ["cpu.cmake"], ["cpu.cmake", "README.md"]):
        monkeypatch.setattr(install_duo, "SOURCES", [ROOT / "csrc" / name for name in sources])
        assert install_duo.main() == 0
    assert given == [("", b"", True), (compiled.name, b"code", True), ("", b"", True)]
    monkeypatch.setattr(sys, "argv", ["install_duo.py", "build/x", "--compile"])
    real = BuildCache.find
    monkeypatch.setattr(BuildCache, "find", lambda *a: real(*a) and Path("removed meanwhile"))
    assert install_duo.main() == 0
    assert given[3:] == [("", b"", False)]


@pytest.mark.daily
@pytest.mark.skipif(shutil.which("c++") is None, reason="no compiler")
def test_cmake_installs_an_extension_that_is_given_and_forgets_it(tmp_path: Path) -> None:
    cmake = shutil.which("cmake", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if cmake is None:
        pytest.skip("no cmake")
    given = tmp_path / "_core.so"
    given.write_text("code")
    configure = [cmake, "-S", ROOT, "-B", tmp_path / "build", f"-DDUO_EXTENSION={given}", "-DSKBUILD_PROJECT_VERSION=0"]
    install = [cmake, "--install", tmp_path / "build", "--prefix", tmp_path / "there"]
    for command in (configure, [cmake, "--build", tmp_path / "build"], install):
        subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=True)
    assert (tmp_path / "there" / "duo" / "_core.so").read_text() == "code"
    assert not list(tmp_path.rglob("*.o")), "nothing is compiled"
    assert "DUO_EXTENSION" not in (tmp_path / "build" / "CMakeCache.txt").read_text()
