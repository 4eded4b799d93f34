"""The wheel with llama.cpp inside. In every run: its metadata, and what duo does with a llama.cpp of its own. With
`-m wheel` or `make test-wheel`: the wheel in dist/, in environments and beside llama-cpp-python."""

import json
import re
import runpy
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from conftest import HANG_S, run_python
from needs import need_program
from test_packaging import environment_with
from wheels import TAG, found, has_plugin, metadata_of, wheel_for, wheels

import duo
from duo import _core, _libs, build_advice
from duo.errors import MissingPackageError
from duo.models.demo import demo_pair

ROOT = Path(__file__).parents[1]
METADATA = ROOT / "tools" / "wheel_metadata.py"
MAX_BYTES, MAX_BYTES_CUDA = 60_000_000, 100_000_000
OUTSIDE = {"libvulkan.so.1", "libcuda.so.1", "libcublas.so.13", "libcublasLt.so.13"}  # of drivers, and of nvidia-cublas
CPUS = {"x64", "sse42", "sandybridge", "haswell", "skylakex", "icelake", "zen4", "alderlake", "sapphirerapids"}

PROMPT = "Once upon a time there was a little tin soldier"
GREEDY = {"max_tokens": 24, "temperature": 0}


# ---- in every run


@pytest.fixture
def bundled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As in a wheel: a folder with llama.cpp beside duo's own files."""
    folder = tmp_path / "llama_cpp"
    (folder / "lib").mkdir(parents=True)
    (folder / "__init__.py").write_text('__version__ = "0.3.36"\n')
    for module in (_libs, build_advice):
        monkeypatch.setattr(module, "BUNDLE", folder)
    return folder


@pytest.mark.skipif(not METADATA.is_file(), reason="no sources")
def test_the_wheel_needs_the_server_and_no_llama_cpp_python() -> None:
    metadata = runpy.run_path(str(METADATA))["wheel_metadata"]
    made = metadata(
        "Name: duo-llama\nRequires-Dist: llama-cpp-python==1.2.3\nRequires-Dist: numpy\nProvides-Extra: server\n"
        'Requires-Dist: uvicorn>=0.34; extra == "server"\nRequires-Dist: torch>=2.4; extra == "train"\n'
    ).splitlines()
    needed = [line.partition(": ")[2] for line in made if line.startswith("Requires-Dist") and ";" not in line]
    assert needed == ["numpy", "uvicorn>=0.34"]
    assert 'Requires-Dist: llama-cpp-python==1.2.3; extra == "llama-cpp"' in made
    assert {"Provides-Extra: llama-cpp", "Provides-Extra: server", "Name: duo-llama"} <= set(made)
    with pytest.raises(ValueError, match="llama-cpp-python"):
        metadata("Name: duo-llama\nRequires-Dist: numpy\n")
    more = metadata("Name: duo-llama\nRequires-Dist: llama-cpp-python==1.2.3\n", {"cuda": "nvidia-cublas>=13"})
    assert '\nProvides-Extra: cuda\nRequires-Dist: nvidia-cublas>=13; extra == "cuda"\n' in more


@pytest.mark.skipif(not METADATA.is_file(), reason="no sources")
def test_a_build_of_another_toolchain_is_configured_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(METADATA.parent))
    renew = runpy.run_path(str(METADATA.with_name("wheel_target.py")))["renew_builds"]
    build, record = tmp_path / "llama", tmp_path / "toolchain.txt"
    configured = ["CMakeCache.txt", "CMakeFiles/4.1.0/CMakeCXXCompiler.cmake", "bin/libx.so"]
    kept = ["CMakeFiles/x.dir/x.o", "ggml/CMakeFiles/y.dir/y.o", ".ninja_log", "build.ninja"]

    def configure() -> None:
        for name in (*configured, *kept):
            (build / name).parent.mkdir(parents=True, exist_ok=True)
            (build / name).touch()

    def files() -> set[str]:
        return {str(f.relative_to(build)) for f in build.rglob("*") if f.is_file()}

    configure()
    renew([build, tmp_path / "duo"], "g++ 12", record)  # from before there was a record; the second was never built
    assert files() == set(kept)
    configure()
    renew([build], "g++ 12", record)
    assert files() == {*configured, *kept}
    renew([build], "g++ 13", record)
    assert files() == set(kept)


def test_a_duo_with_its_own_llama_cpp_uses_no_other(bundled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLAMA_CPP_LIB_PATH", "/elsewhere")  # for llama_cpp, which may be there, too
    assert _libs.library_dir() == bundled / "lib"
    assert _libs.libllama() == bundled / "lib" / "libduo-llama.so"
    assert _libs.release_of(_libs.library_dir()) == "0.3.36"
    shutil.rmtree(bundled)
    assert _libs.library_dir() == Path("/elsewhere")


def test_the_advice_of_a_wheel_is_none_about_llama_cpp_python(bundled: Path) -> None:
    assert _libs.reinstall() == "install duo-llama again"
    assert re.search(r'^CMAKE_ARGS="-DGGML_RPC=on.*" make demo in a clone of duo', build_advice.rebuild())
    assert "pip" not in build_advice.rebuild()


def test_a_library_that_cannot_be_loaded_is_named(bundled: Path) -> None:
    code = (
        "import sys\nfrom pathlib import Path\nfrom duo import _libs, build_advice\n"
        "_libs.BUNDLE = build_advice.BUNDLE = Path(sys.argv[1])\n"
        "try:\n    _libs.load_core()\nexcept ImportError as e:\n    print(e)"
    )
    said = run_python(code, bundled).stdout
    assert re.search(r"libduo-llama\.so could not be loaded \(.*\); install duo-llama again$", said.strip()), said


@pytest.mark.skipif(sys.platform != "linux", reason="wheels are for Linux")
def test_two_that_the_loader_would_mix_are_refused(bundled: Path) -> None:
    """This build has loaded llama_cpp's for the whole process."""
    with pytest.raises(ImportError, match="has loaded another llama"):
        _libs.load_core()


def test_chat_formats_of_llama_cpp_need_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llama_cpp", None)
    with pytest.raises(MissingPackageError, match=r"^chat_format='chatml' .*pip install llama-cpp-python==") as caught:
        duo.Duo(demo_pair()[0], chat_format="chatml")
    assert "\n" not in str(caught.value)
    with duo.Duo(demo_pair()[0], n_ctx=128, chat_template="chatml") as d:
        assert d.generate("Once", max_tokens=2).text


# ---- the wheel


@pytest.mark.wheel
def test_what_is_inside() -> None:
    for wheel in wheels():
        assert re.search(r"-manylinux_2_(\d+)_x86_64", wheel.name), wheel.name
        with zipfile.ZipFile(wheel) as z:
            names = z.namelist()
        inside = {n.removeprefix("duo/llama_cpp/") for n in names if n.startswith("duo/llama_cpp/")}
        cuda = has_plugin(wheel, "cuda")
        assert wheel.stat().st_size <= (MAX_BYTES_CUDA if cuda else MAX_BYTES)
        assert ("LICENSE.cudart" in inside) == cuda
        assert bool(re.search(r"^Requires-Dist: nvidia-cublas.*extra ==", metadata_of(wheel), re.MULTILINE)) == cuda
        assert {"lib/libduo-llama.so", "lib/libduo-ggml.so", "lib/libduo-ggml-base.so", "lib/libggml-rpc.so"} <= inside
        assert {f"lib/libggml-cpu-{cpu}.so" for cpu in CPUS} <= inside
        assert {"LICENSE", "LICENSE.libgomp", "__init__.py"} <= inside
        assert sum(n.startswith("duo_llama.libs/lib") for n in names) == 1, "libgomp only"
        needed = re.findall(r"^Requires-Dist: ([^;\n]+)$", metadata_of(wheel), re.MULTILINE)
        assert "numpy" in needed and not any("llama" in n for n in needed)


@pytest.mark.wheel
def test_the_tag_is_right() -> None:
    """auditwheel looks at the symbols of each library. Only the GPUs' may be missing, and those of this machine do not
    count (--ldpaths: they are not looked for)."""
    for wheel in [*wheels(), *found("aarch64")]:
        command = [Path(sys.executable).with_name("auditwheel"), "show", "--json", "--ldpaths", "/nowhere", wheel]
        said = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=True).stdout
        told = json.loads(said)
        assert f"{told['sym_tag']}." in wheel.name, said
        assert int(told["sym_tag"].split("_")[2]) <= 28
        assert told["external_libs"].keys() <= OUTSIDE, said


WRITE = "import duo, sys\nprint(duo.generate(sys.argv[1], max_tokens=24, temperature=0, n_ctx=256).text)"


@pytest.mark.wheel
@pytest.mark.slow
def test_the_wheel_writes_what_this_build_writes(tmp_path: Path) -> None:
    python = environment_with(wheel_for(TAG), tmp_path / "environment", without="llama_cpp")
    absent = run_python("import llama_cpp", python=str(python))
    assert "No module named 'llama_cpp'" in absent.stderr
    done = run_python(WRITE, PROMPT, python=str(python), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.removesuffix("\n") == duo.generate(PROMPT, n_ctx=256, **GREEDY).text
    code = "from duo import _core; print(*_core.kernels()); print(_core.extra_buffers())"
    kernels = run_python(code, python=str(python), cwd=tmp_path)
    assert kernels.stdout.splitlines() == [" ".join(_core.kernels()), str(_core.extra_buffers())]


@pytest.mark.wheel
@pytest.mark.timeout(900)
def test_every_interpreter_writes_the_same(tmp_path: Path) -> None:
    """Each wheel with the Python that it was made with; what it needs comes from the package index."""
    for wheel in wheels():
        (tag,) = re.findall(r"-cp3(\d+)-cp3", wheel.name)
        maker, folder = ROOT / "build" / "wheel" / f"python3.{tag}" / "bin" / "python", tmp_path / tag
        subprocess.run([maker, "-m", "venv", "--without-pip", folder], check=True)
        python = folder / "bin" / "python"
        pip = [maker, "-m", "pip", "--disable-pip-version-check", "--python", python, "install", "-q", wheel]
        subprocess.run(pip, check=True, timeout=300)
        done = run_python(WRITE, PROMPT, python=str(python), cwd=tmp_path)
        assert done.returncode == 0, (wheel.name, done.stderr)
        assert done.stdout.removesuffix("\n") == duo.generate(PROMPT, n_ctx=256, **GREEDY).text


CHOSEN = """
from duo import _core
from duo.placement import guard
print(*(p.stem.removeprefix("libggml-cpu-") for p in guard.libraries()), _core.kernels()[0] or "stock")
"""


@pytest.mark.wheel
@pytest.mark.slow
def test_code_is_chosen_for_the_processor(tmp_path: Path) -> None:
    """Processors that QEMU emulates. It has no AVX-512; this machine's own processor is in the other tests."""
    emulator = need_program("arm", "qemu-x86_64-static")  # one package has all emulators
    python = environment_with(wheel_for(TAG), tmp_path / "environment")
    for processor, code, kernels in (
        ("qemu64", "x64", "stock"),
        ("Nehalem", "sse42", "stock"),
        ("SandyBridge", "sandybridge", "stock"),
        ("IvyBridge", "ivybridge", "stock"),
        ("Haswell", "haswell", "avx2"),
    ):
        command = [emulator, "-cpu", processor, python, "-c", CHOSEN]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=HANG_S, check=False)
        assert done.stdout.split() == [code, kernels], (processor, done.stderr)
    old = [emulator, "-cpu", "Nehalem", python, "-c", WRITE, PROMPT]
    done = subprocess.run(old, cwd=tmp_path, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode == 0 and len(done.stdout) > 24, done.stderr


BOTH = """
import sys
model, prompt, first = sys.argv[1:]
def stock():
    import llama_cpp
    llm = llama_cpp.Llama(model, n_ctx=256, verbose=False)
    def write():
        return llm(prompt, max_tokens=24, temperature=0)["choices"][0]["text"]
    return write
def ours():
    import duo
    d = duo.Duo(model, n_ctx=256, cpu_kernels="stock")
    return lambda: d.generate(prompt, max_tokens=24, temperature=0).text
makers = [stock, ours] if first == "llama_cpp" else [ours, stock]
writers = [make() for make in makers]
texts = [write() for _ in range(2) for write in writers]
maps = open("/proc/self/maps").read()
assert "libllama.so" in maps and "libduo-llama.so" in maps
assert len(set(texts)) == 1 and texts[0], texts
print(texts[0])
"""


@pytest.mark.wheel
@pytest.mark.slow
@pytest.mark.parametrize("first", ["llama_cpp", "duo"])
def test_llama_cpp_python_in_the_same_process(first: str, tmp_path: Path) -> None:
    python = environment_with(wheel_for(TAG), tmp_path / "environment")
    done = run_python(BOTH, demo_pair()[0], PROMPT, first, python=str(python), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


GLOBAL = """
import ctypes, llama_cpp, sys
if sys.argv[1] == "duo":
    from duo import _core
ctypes.CDLL(llama_cpp.__path__[0] + "/lib/libllama.so", ctypes.RTLD_GLOBAL)
try:
    import duo
    print(duo.generate("Once upon a time", max_tokens=4, n_ctx=64).timings["predicted_n"])
except ImportError as e:
    print(e)
"""


@pytest.mark.wheel
def test_llama_cpp_for_the_whole_process(tmp_path: Path) -> None:
    """The loader would mix the two copies, which ends in a crash."""
    python = environment_with(wheel_for(TAG), tmp_path / "environment")
    for first, said in (("duo", "4"), ("llama_cpp", "this process has loaded another llama.cpp")):
        done = run_python(GLOBAL, first, python=str(python), cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(said)
