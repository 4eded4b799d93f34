"""How llama.cpp is built: the CMAKE_ARGS of `make demo`, the advice that duo prints, and cached wheels that crash."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import HANG_S

from duo import build_advice
from duo.build_advice import cmake_args, missing, rebuild

pytestmark = pytest.mark.full

ROOT = Path(__file__).parents[1]
ASM = '__asm__ volatile ("ldtilecfg\\t%X0" :: "m" (*((const void **)__config)));'
BUILTIN = "__builtin_ia32_ldtilecfg (__config);"
FIXED = "-DCMAKE_CXX_FLAGS=-fno-dse"
LEFT_OUT = f"-DCMAKE_PROJECT_llama_cpp_INCLUDE={(ROOT / 'tools' / 'llama_libraries.cmake').resolve()}"

CompilerMaker = Callable[[str], str]


@pytest.fixture
def compiler(tmp_path: Path) -> CompilerMaker:
    """A C++ compiler whose header has this body of _tile_loadconfig; empty: that is for another processor."""

    def make(body: str) -> str:
        path = tmp_path / f"c++-{len(list(tmp_path.glob('c++-*')))}"
        header = f"_tile_loadconfig (const void *__config)\n{{\n  {body}\n}}\n"
        said = f"cat <<'EOF'\n{header}EOF" if body else "echo 'unknown option -mamx-tile' >&2; exit 1"
        path.write_text(f"#!/bin/sh\n{said}\n")
        path.chmod(0o755)
        return str(path)

    return make


def test_a_compiler_with_the_fault_gets_the_flag(compiler: CompilerMaker) -> None:
    assert cmake_args({"CXX": compiler(ASM)}) == f"-DGGML_RPC=on {FIXED}"
    assert cmake_args({"CXX": f"{compiler(ASM)} -pipe"}) == f"-DGGML_RPC=on {FIXED}"
    for other in (compiler(BUILTIN), compiler(""), "/nowhere/c++", "'"):
        assert cmake_args({"CXX": other}) == "-DGGML_RPC=on"


def test_the_users_own_arguments_stay(compiler: CompilerMaker) -> None:
    cxx = compiler(ASM)
    cuda = "-DGGML_CUDA=on -DGGML_RPC=on"
    assert cmake_args({"CXX": cxx, "CMAKE_ARGS": cuda}) == f"{cuda} {FIXED}"
    assert cmake_args({"CXX": cxx, "CXXFLAGS": "-O2 -g"}) == "-DGGML_RPC=on '-DCMAKE_CXX_FLAGS=-O2 -g -fno-dse'"
    assert cmake_args({"CXX": cxx, "CXXFLAGS": "-fno-dse"}) == "-DGGML_RPC=on"
    chosen = f"-DCMAKE_CXX_COMPILER={compiler(BUILTIN)}"
    assert cmake_args({"CXX": cxx, "CMAKE_ARGS": chosen}) == chosen
    for own in ("-DCMAKE_CXX_FLAGS=-O2", "'-DCMAKE_CXX_FLAGS=-O2 -g'"):
        assert cmake_args({"CXX": cxx, "CMAKE_ARGS": own}) == own
        assert "-fno-dse" in missing({"CXX": cxx, "CMAKE_ARGS": own})
    own = "'-DCMAKE_CXX_FLAGS=-O2 -fno-dse'"
    assert (cmake_args({"CXX": cxx, "CMAKE_ARGS": own}), missing({"CXX": cxx, "CMAKE_ARGS": own})) == (own, "")


@pytest.mark.parametrize("flag", ["CMAKE_CXX_FLAGS_RELEASE=-O3", "CMAKE_CXX_FLAGS_DEBUG:STRING=-g"])
def test_flags_of_one_kind_of_build_are_not_the_flags(flag: str, compiler: CompilerMaker) -> None:
    environment = {"CXX": compiler(ASM), "CMAKE_ARGS": f"-D{flag}"}
    assert (cmake_args(environment), missing(environment)) == (f"-D{flag} {FIXED}", "")
    for own in ("-DCMAKE_CXX_FLAGS:STRING=-O2", "-D CMAKE_CXX_FLAGS=-O2"):
        assert cmake_args(environment | {"CMAKE_ARGS": own}) == own
        # CMake then does not look at CXXFLAGS.
        assert missing(environment | {"CMAKE_ARGS": own, "CXXFLAGS": "-fno-dse"})


def test_the_advice_keeps_what_the_user_builds_with(compiler: CompilerMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    end = "pip install --force-reinstall --no-cache-dir llama-cpp-python==0.3.36"
    hint = " (add -DGGML_CUDA=on for NVIDIA GPUs)"
    monkeypatch.setenv("CXX", compiler(ASM))
    for name in ("CXXFLAGS", "CMAKE_ARGS"):
        monkeypatch.delenv(name, raising=False)
    assert rebuild() == f'CMAKE_ARGS="-DGGML_RPC=on {FIXED}" {end}{hint}'
    monkeypatch.setenv("CXXFLAGS", "-O2 -g")
    assert rebuild() == f"CMAKE_ARGS=\"-DGGML_RPC=on '-DCMAKE_CXX_FLAGS=-O2 -g -fno-dse'\" {end}{hint}"
    monkeypatch.delenv("CXXFLAGS")
    monkeypatch.setenv("CMAKE_ARGS", "-DGGML_CUDA=on")
    assert rebuild() == f'CMAKE_ARGS="-DGGML_CUDA=on -DGGML_RPC=on {FIXED}" {end}'
    monkeypatch.setenv("CMAKE_ARGS", '-DGGML_RPC=on "-DCMAKE_CXX_FLAGS=-O2 -g"')
    assert rebuild() == f"CMAKE_ARGS=\"-DGGML_RPC=on '-DCMAKE_CXX_FLAGS=-O2 -g -fno-dse'\" {end}{hint}"
    monkeypatch.setenv("CMAKE_ARGS", "'-DGGML_CUDA=on")
    assert rebuild() == f'CMAKE_ARGS="-DGGML_RPC=on {FIXED}" {end}{hint}'


def test_the_advice_has_the_flag_where_the_compiler_needs_it(
    compiler: CompilerMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    for cxx, plain, amx in ((compiler(ASM), True, True), (compiler(BUILTIN), False, False), ("/nowhere", False, True)):
        monkeypatch.setenv("CXX", cxx)
        monkeypatch.delenv("CMAKE_ARGS", raising=False)
        assert ("-fno-dse" in rebuild(), "-fno-dse" in rebuild(amx=True)) == (plain, amx)


@pytest.mark.daily
@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")
def test_the_compiler_of_this_machine_is_judged_by_what_it_compiles(tmp_path: Path) -> None:
    """The stores before ldtilecfg are there, or this compiler is said to lose them."""
    source = tmp_path / "tile.cpp"
    source.write_text("""
#include <immintrin.h>
struct alignas(64) config { unsigned char palette, start, none[14]; unsigned short width[16]; unsigned char rows[16]; };
void configure() {
    config c = {};
    c.palette = 1;
    for (int i = 0; i < 8; ++i) { c.width[i] = 0x1234; }
    _tile_loadconfig(&c);
}
""")
    lost = build_advice.loses_tile_stores(("g++",))

    def stores(*flags: str) -> bool:
        command = ["g++", "-O3", "-mamx-tile", *flags, "-S", str(source), "-o", "-"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False)
        if done.returncode != 0:
            pytest.skip("this g++ makes no code for AMX")
        return any(str(n) in done.stdout for n in (0x1234, 0x12341234, 0x1234123412341234, "0x1234"))

    assert stores("-fno-dse")
    assert lost is not stores()


# ---- make


PYTHON_STUB = """#!/bin/sh
# Notes each call with its CMAKE_ARGS; what is asked about the build answers as told.
echo "$CMAKE_ARGS | $*" >> "{log}"
case "$1" in
    tools/check_amx.py) exit {amx};;
    tools/install_llama.py) test {llama} = 0 || echo failed as told >&2; exit {llama};;
esac
"""


def make(tmp_path: Path, target: str, environment: dict[str, str], amx: int = 0, llama: int = 0) -> list[str]:
    """Runs make up to `target` of a new environment whose Python only takes notes. Returns its calls."""
    venv, log = tmp_path / "venv", tmp_path / "calls"
    (venv / "bin").mkdir(parents=True, exist_ok=True)
    stub = venv / "bin" / "python"
    stub.write_text(PYTHON_STUB.format(log=log, amx=amx, llama=llama))
    stub.chmod(0o755)
    log.write_text("")
    for stamp in ("pip", "tools", *(["llama"] if target == "duo" else [])):
        if not (venv / stamp).exists():
            (venv / stamp).touch()
    others = ("CMAKE_ARGS", "CXXFLAGS", "MAKEFLAGS", "MAKELEVEL", "PYTHONDONTWRITEBYTECODE")
    outside = {k: v for k, v in os.environ.items() if k not in others}
    done = subprocess.run(
        ["make", f"VENV={venv}", f"PYTHON={sys.executable}", str(venv / target)],
        cwd=ROOT, env=outside | environment, capture_output=True, text=True, timeout=HANG_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [line for line in log.read_text().splitlines() if "| tools/" in line]


needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="no make")


@pytest.mark.daily
@needs_make
@pytest.mark.parametrize("given", ["", "-DGGML_CUDA=on -DGGML_RPC=on"])
def test_make_builds_llama_with_the_flag(given: str, compiler: CompilerMaker, tmp_path: Path) -> None:
    for body, flag in ((ASM, f" {FIXED}"), (BUILTIN, "")):
        environment = {"CXX": compiler(body)} | ({"CMAKE_ARGS": given} if given else {})
        wanted = (given or "-DGGML_RPC=on") + flag + f" {shlex.quote(LEFT_OUT)}"
        calls = make(tmp_path, "llama", environment)
        assert calls == [f"{wanted} | tools/install_llama.py {build_advice.package()}"]
        (tmp_path / "venv" / "llama").unlink()


@needs_make
def test_make_builds_llama_again_for_other_arguments(compiler: CompilerMaker, tmp_path: Path) -> None:
    """Without CMAKE_ARGS what is installed stays; a build that failed leaves the arguments of the one before."""
    plain, cuda = {"CXX": compiler(BUILTIN)}, {"CXX": compiler(BUILTIN), "CMAKE_ARGS": "-DGGML_CUDA=on -DGGML_RPC=on"}
    stamp = tmp_path / "venv" / "llama"
    assert len(make(tmp_path, "llama", plain)) == 1 and stamp.read_text().startswith("-DGGML_RPC=on ")
    assert make(tmp_path, "llama", plain) == []
    (call,) = make(tmp_path, "llama", cuda)
    assert call.startswith(f"{cuda['CMAKE_ARGS']} ") and call.startswith(stamp.read_text().strip())
    assert make(tmp_path, "llama", cuda) == make(tmp_path, "llama", plain) == []
    before = stamp.read_text()
    with pytest.raises(AssertionError, match="failed as told"):
        make(tmp_path, "llama", plain | {"CMAKE_ARGS": "-DGGML_HIP=on"}, llama=1)
    (call,) = make(tmp_path, "llama", plain)
    assert stamp.read_text() == before and call.startswith(cuda["CMAKE_ARGS"])
    stamp.write_text("")  # of a make that noted no arguments
    assert make(tmp_path, "llama", plain) == [] and len(make(tmp_path, "llama", cuda)) == 1


@needs_make
def test_make_rebuilds_a_llama_whose_amx_crashes(compiler: CompilerMaker, tmp_path: Path) -> None:
    environment = {"CXX": compiler(ASM)}
    first = make(tmp_path, "duo", environment, amx=3)
    (tmp_path / "venv" / "duo").unlink()
    again = make(tmp_path, "duo", environment, amx=3)
    assert first == [
        " | tools/install_duo.py build/venv",  # as ever
        " | tools/check_amx.py",
        f"-DGGML_RPC=on {FIXED} {shlex.quote(LEFT_OUT)} | tools/install_llama.py {build_advice.package()} --again",
    ]
    assert again == first[:1]
    shutil.rmtree(tmp_path / "venv")
    assert len(make(tmp_path, "duo", environment, amx=0)) == 2


@needs_make
def test_make_stops_if_duo_cannot_check_the_build(compiler: CompilerMaker, tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        make(tmp_path, "duo", {"CXX": compiler(ASM)}, amx=1)
    assert not (tmp_path / "venv" / "duo").exists()


@needs_make
@pytest.mark.skipif(shutil.which("nproc") is None, reason="no nproc")
@pytest.mark.parametrize(
    ("limit", "jobs"),
    [("100000 100000", 1), ("50000 100000", 1), ("max 100000", None), ("990000000 100000", None), ("", None)],
)
def test_make_compiles_with_no_more_jobs_than_a_container_may(limit: str, jobs: int | None, tmp_path: Path) -> None:
    file = tmp_path / "cpu.max"
    if limit:
        file.write_text(limit + "\n")
    command = ["make", "-s", "--eval", "show: ; @echo $(JOBS)", "show", f"CPU_MAX={file}"]
    outside = {k: v for k, v in os.environ.items() if k not in ("JOBS", "MAKEFLAGS", "MAKELEVEL")}
    done = subprocess.run(command, cwd=ROOT, env=outside, capture_output=True, text=True, timeout=HANG_S, check=True)
    n = int(subprocess.run(["nproc"], env=outside, capture_output=True, check=True).stdout)
    assert int(done.stdout) == min(n, jobs or n)


@needs_make
def test_make_asks_the_system_where_there_is_no_nproc(tmp_path: Path) -> None:
    for name, body in (("nproc", "exit 127"), ("getconf", '[ "$1" = _NPROCESSORS_ONLN ] && echo 3')):
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    command = ["make", "-s", "--eval", "show: ; @echo $(JOBS)", "show", f"CPU_MAX={tmp_path / 'none'}"]
    outside = {k: v for k, v in os.environ.items() if k not in ("JOBS", "MAKEFLAGS", "MAKELEVEL")}
    outside["PATH"] = f"{tmp_path}{os.pathsep}{outside['PATH']}"
    done = subprocess.run(command, cwd=ROOT, env=outside, capture_output=True, text=True, timeout=HANG_S, check=True)
    assert int(done.stdout) == 3


@needs_make
def test_make_works_in_a_folder_whose_name_has_a_space(tmp_path: Path) -> None:
    clone = tmp_path / "a clone"
    (clone / "csrc").mkdir(parents=True)
    (clone / "src").mkdir()
    for name in ("Makefile", "pyproject.toml", "CMakeLists.txt", "models.yaml", "tools"):
        (clone / name).symlink_to(ROOT / name)
    outside = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL", "VENV")}
    targets = ("test-cpp", "tsan", "asan", "proof", "test-arm")
    done = subprocess.run(
        ["make", "-n", *targets], cwd=clone, env=outside, capture_output=True, text=True, timeout=HANG_S, check=True
    )
    lines = [shlex.split(x) for x in done.stdout.replace("\\\n", "").splitlines() if "CMAKE_MAKE_PROGRAM" in x]
    ninja = f"-DCMAKE_MAKE_PROGRAM={clone}/.venv/bin/ninja"
    assert len(lines) == 6 and all(ninja in words for words in lines)
    # No other word is cut at the space.
    assert all(str(clone) in word for words in lines for word in words if str(tmp_path) in word)
