"""What a build depends on, so that another clone can use it again."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
if not (ROOT / "tools" / "build_facts.py").is_file():
    pytest.skip("no sources", allow_module_level=True)
sys.path.insert(0, str(ROOT / "tools"))
import build_facts  # type: ignore[import-not-found]  # noqa: E402
from build_facts import UnknownFactsError, llama_facts  # noqa: E402

PACKAGE = "llama-cpp-python==1.2"


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
        ({"CMAKE_ARGS": "", "SKBUILD_CMAKE_DEFINE": "GGML_RPC=ON;GGML_HIP=yes"}, "GGML_HIP"),
        ({"CMAKE_ARGS": "", "SKBUILD_CMAKE_ARGS": "-DGGML_RPC=ON;-DCMAKE_CXX_COMPILER=c++"}, "SKBUILD_CMAKE_ARGS"),
        ({"CXXFLAGS": f"-I{ROOT}/nowhere"}, "nowhere"),
        ({"CXX": "/nowhere/c++"}, "/nowhere/c"),
        ({"CMAKE_ARGS": "-DCMAKE_TOOLCHAIN_FILE=x.cmake"}, "toolchain"),
    ],
)
def test_a_build_of_which_something_is_unknown_has_no_facts(environment: dict[str, str], why: str) -> None:
    with pytest.raises(UnknownFactsError, match=why):
        llama_facts(PACKAGE, environment)


@pytest.mark.parametrize("value", ["on", "ON", "yes", "=", "2", "True", "y", "x"])
def test_a_backend_is_on_unless_its_value_is_false(value: str) -> None:
    for name, text in (("CMAKE_ARGS", "-D GGML_A=off -DGGML_B:BOOL={}"), ("SKBUILD_CMAKE_DEFINE", "X=1;GGML_B={}")):
        assert build_facts.switched_on({name: text.format(value)}) == ["B"]
    for no in ("off", "OFF", "No", "n", "FALSE", "0", "", "ignore", "NOTFOUND", "x-NOTFOUND", "''"):
        assert build_facts.switched_on({"CMAKE_ARGS": f"-DGGML_B={value} -DGGML_B={no} -DX=1"}) == []


def test_several_files_of_a_clone_can_be_in_one_argument(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for name in ("one", "two"):
        clone = tmp_path / name
        for folder in ("a", "b"):
            (clone / folder).mkdir(parents=True)
            (clone / folder / "own.h").write_text(folder)
        monkeypatch.setattr(build_facts, "ROOT", clone)
        found.append(llama_facts(PACKAGE, {**os.environ, "CPATH": f"{clone}/a:{clone}/b"}))
    assert found[0] == found[1]


def test_the_compiler_for_cuda_is_the_one_that_cmake_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in (("nvcc", "V 12"), ("nvidia-smi", "9.0"), ("other", "V 13"), ("same", "V 12")):
        (tmp_path / name).write_text(f"#!/bin/sh\necho {text}\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)

    def cuda(**environment: str) -> list[str]:
        facts: list[str] = llama_facts(PACKAGE, {**os.environ, "CMAKE_ARGS": "-DGGML_CUDA=1", **environment})
        return [line for line in facts if line.startswith("nvcc ")]

    named = f"-DGGML_CUDA=1 -DCMAKE_CUDA_COMPILER={tmp_path}"
    assert cuda() == cuda(CUDACXX=str(tmp_path / "same")) == cuda(CMAKE_ARGS=f"{named}/same", CUDACXX="other")
    assert cuda() != cuda(CUDACXX=str(tmp_path / "other")) == cuda(CMAKE_ARGS=f"{named}/other")
