"""Builds that another clone uses again: what they depend on, what is kept, and what `make` does with it."""

import os
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable
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
from build_facts import UnknownFactsError, llama_facts  # noqa: E402

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


# ---- what a build depends on


@pytest.fixture
def compiler(tmp_path: Path) -> Callable[[str, str], str]:
    """A compiler that defines `plain`, and with -march=native `native`."""

    def make(plain: str, native: str) -> str:
        path = tmp_path / f"c++-{len(list(tmp_path.glob('c++-*')))}"
        path.write_text(
            f'#!/bin/sh\necho "#define {plain}"\ncase "$*" in *-march=native*) echo "#define {native}";; esac\n'
        )
        path.chmod(0o755)
        return str(path)

    return make


def test_another_compiler_processor_or_argument_is_another_build(compiler: Callable[[str, str], str]) -> None:
    here = {"CXX": compiler("V 12", "AVX2"), "CC": "cc", "CMAKE_ARGS": "-DGGML_RPC=on"}
    facts = llama_facts(PACKAGE, here)
    assert facts == llama_facts(PACKAGE, {**here, "CMAKE_BUILD_PARALLEL_LEVEL": "3", "LLAMA_API_KEY": "secret"})
    for other in ({"CMAKE_ARGS": "-DGGML_RPC=off"}, {"CXXFLAGS": "-O1"}, {"CXX": "c++"}, {"CC": here["CXX"]}):
        assert llama_facts(PACKAGE, {**here, **other}) != facts
    assert llama_facts("llama-cpp-python==1.3", here) != facts
    path = Path(here["CXX"])
    script = path.read_text()
    for old, new in (("V 12", "V 13"), ("AVX2", "AVX512F")):  # the same compiler, or processor, is another one now
        path.write_text(script.replace(old, new))
        assert llama_facts(PACKAGE, here) != facts
    extension = build_facts.extension_facts(here, [])  # its code for processors is chosen when it runs
    path.write_text(script.replace("AVX2", "AVX512F"))
    assert build_facts.extension_facts(here, []) == extension
    path.write_text(script.replace("V 12", "V 13"))
    assert build_facts.extension_facts(here, []) != extension


def test_another_clone_has_the_same_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for name, text in (("one", "set(A)"), ("two", "set(A)"), ("three", "set(B)")):
        clone = tmp_path / name
        clone.mkdir()
        (clone / "own.cmake").write_text(text)
        monkeypatch.setattr(build_facts, "ROOT", clone)
        args = f"-DGGML_RPC=on '-DCMAKE_PROJECT_llama_cpp_INCLUDE={clone}/own.cmake'"
        found.append(llama_facts(PACKAGE, {**os.environ, "CMAKE_ARGS": args}))
    assert found[0] == found[1] != found[2]
    assert str(tmp_path) not in "\n".join(found[0])


@pytest.mark.parametrize(
    ("environment", "why"),
    [
        ({"CMAKE_ARGS": "-DGGML_SYCL=on"}, "GGML_SYCL"),
        ({"CMAKE_ARGS": "-DGGML_CUDA=ON", "CUDACXX": "/nowhere/nvcc"}, "nvcc"),
        ({"CXX": "/nowhere/c++"}, "/nowhere/c"),
        ({"CMAKE_ARGS": "-DCMAKE_TOOLCHAIN_FILE=x.cmake"}, "toolchain"),
    ],
)
def test_a_build_of_which_something_is_unknown_has_no_facts(environment: dict[str, str], why: str) -> None:
    with pytest.raises(UnknownFactsError, match=why):
        llama_facts(PACKAGE, environment)


# ---- what is installed


class Pip:
    """Notes what is compiled and installed, in place of pip."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.calls, self.lacking = folder, [], 0
        monkeypatch.setattr(install_llama, "built", self._built)
        monkeypatch.setattr(install_llama, "installed", self._installed)
        monkeypatch.setattr(install_llama, "has_backends", self._has_backends)
        self._patch = monkeypatch

    def _built(self, _: str, *options: str) -> Path:
        self.calls.append(" ".join(["compile", *options]))
        wheel = self.folder / "llama_cpp_python.whl"
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
        return self.calls


@pytest.fixture
def pip(tmp_path: Path, cache: BuildCache, monkeypatch: pytest.MonkeyPatch) -> Pip:
    monkeypatch.setenv("CMAKE_ARGS", "-DGGML_RPC=on")
    return Pip(tmp_path, monkeypatch)


SOURCES = "compile --no-binary llama-cpp-python"


def test_a_second_clone_compiles_nothing(pip: Pip, cache: BuildCache, capsys: pytest.CaptureFixture[str]) -> None:
    assert pip.run() == ["compile", "install 1"]
    assert pip.run() == ["install 1"]
    assert capsys.readouterr().out.splitlines()[-1].endswith("DUO_BUILD_CACHE=off compiles it)")
    (wheel,) = cache.folder.rglob("*.whl")
    wheel.write_text("x")
    assert pip.run() == ["compile", "install 1"]
    pip.lacking = 1  # it cannot be loaded: a library of the system has gone
    assert pip.run() == ["install 1", "compile", "install 2"]
    assert pip.run() == ["install 2"]


def test_a_wheel_of_an_index_that_lacks_a_backend_is_compiled(pip: Pip) -> None:
    pip.lacking = 1
    assert pip.run() == ["compile", "install 1", SOURCES, "install 3"]
    assert pip.run() == ["install 3"]


def test_a_llama_whose_amx_crashes_is_compiled_once_for_all_clones(pip: Pip) -> None:
    assert pip.run() == ["compile", "install 1"]
    assert pip.run("--again") == [SOURCES, "install 1"]
    assert pip.run() == ["install 1"]
    assert pip.run("--again") == []


def test_the_cache_can_be_off(pip: Pip, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUO_BUILD_CACHE", "off")
    assert pip.run() == pip.run() == ["compile", "install 1"]
    monkeypatch.delenv("DUO_BUILD_CACHE")
    monkeypatch.setenv("CMAKE_ARGS", "-DGGML_SYCL=on")  # nothing is known about it
    assert pip.run() == pip.run() == ["compile", "install 1"]


def test_the_extension_is_compiled_once(cache: BuildCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[str] = []

    def run(command: list[str], **_: object) -> "subprocess.CompletedProcess[bytes]":
        given.extend(str(word).rpartition("=")[2] for word in command if "DUO_EXTENSION=" in str(word))
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
    assert [bool(path) for path in given] == [False, True, False]
    assert Path(given[1]).name == compiled.name and Path(given[1]).read_bytes() == b"code"


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
