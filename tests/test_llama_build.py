"""Which llama.cpp duo works with: by commit, else by release. Real libraries, told to be of another commit."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import HANG_S
from sizes import mostly_daily

from duo import _core
from duo._libs import library_dir, release_of
from duo.models.demo import demo_pair

COMMIT = _core.ggml_commit()
RELEASE = release_of(library_dir())
CMAKE = shutil.which("cmake", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
BUILD_CMAKE = Path(__file__).parents[1] / "csrc" / "llama_build.cmake"

Libraries = Callable[[str, str | None], Path]


@pytest.fixture
def libraries(tmp_path: Path) -> Libraries:
    """A copy of llama-cpp-python's libraries that says another commit and release (None: none)."""

    def make(commit: str, release: str | None) -> Path:
        to = tmp_path / "llama_cpp" / "lib"
        shutil.copytree(library_dir(), to, symlinks=True)
        said = 0
        for file in to.glob("libggml-base*"):
            if file.is_symlink():
                continue
            old, new = COMMIT.encode() + b"\0", commit.encode() + b"\0"
            assert len(new) <= len(old)
            data = file.read_bytes()
            said += data.count(old)
            file.write_bytes(data.replace(old, new.ljust(len(old), b"\0")))
        assert said
        if release is not None:
            (to.parent / "__init__.py").write_text(f'from .llama_cpp import *\n\n__version__ = "{release}"\n')
        return to

    return make


def with_libraries(folder: Path, code: str) -> "subprocess.CompletedProcess[str]":
    env = os.environ | {"LLAMA_CPP_LIB_PATH": str(folder)}
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=HANG_S, check=False, env=env
    )


@pytest.mark.full
@pytest.mark.skipif(sys.platform != "linux", reason="libraries are patched as Linux names them")
@pytest.mark.parametrize(
    ("commit", "release", "works"),
    [
        (COMMIT.removesuffix("-dirty"), RELEASE, True),  # prebuilt, of the same release
        pytest.param(COMMIT.removesuffix("-dirty"), None, True, marks=pytest.mark.daily),  # the commit is enough
        pytest.param(COMMIT.removesuffix("-dirty"), "0.1", True, marks=pytest.mark.daily),
        ("unknown", RELEASE, True),  # built without git
        pytest.param("unknown", "0.1", False, marks=pytest.mark.daily),
        pytest.param("unknown", None, False, marks=pytest.mark.daily),
        pytest.param("", None, False, marks=pytest.mark.daily),
        ("fffffff", RELEASE, False),  # another llama.cpp in the same release's place
    ],
)
def test_builds(libraries: Libraries, commit: str, release: str | None, works: bool) -> None:
    folder = libraries(commit, release)
    done = with_libraries(
        folder,
        "import duo; from duo import _core; print(_core.ggml_commit(), *_core.kernels())\n"
        "print(duo.generate('Once', max_tokens=4, n_ctx=64).text)",
    )
    if works:
        assert done.returncode == 0, done.stderr
        name, why = _core.kernels()
        assert done.stdout.splitlines()[0].split() == [*[commit] * bool(commit), *name.split(), *why.split()]
        return
    error = done.stderr.splitlines()[-1]
    assert error.startswith("ImportError: duo was built for another llama.cpp")
    assert str(folder) in error
    assert "build duo again" in error
    if release:
        assert release in error


@pytest.mark.daily
@pytest.mark.full
@pytest.mark.skipif(sys.platform != "linux" or not _core.kernels()[0], reason="no kernels here that could be off")
@pytest.mark.parametrize("options", [[], ["--cpu-kernels", "stock"]])
def test_kernels_that_are_off_say_why(libraries: Libraries, options: list[str]) -> None:
    """As in a duo that was built for another release."""
    folder = libraries("unknown", RELEASE)
    target, draft = map(str, demo_pair())
    done = with_libraries(
        folder,
        "import sys\nfrom duo import _core\nfrom duo.cli.main import main\n_core.check_llama('0.1')\n"
        f"main({['-m', target, '-md', draft, '-p', 'Once', '-n', '2', *options]!r})\nmain(['devices'])\n"
        "sys.stdout.flush(); main(['doctor', '--cpu-kernels', 'duo'])",
    )
    ggml = _core.check_llama(RELEASE)[2].partition(",")[0]
    why = f"llama.cpp is {ggml}, commit unknown, of llama-cpp-python 0.1, and the kernels were made for ggml"
    said = done.stderr.splitlines()
    assert "stock kernels" in said[0]
    assert said[1].startswith(f"duo: duo's CPU kernels are off: {why}") != bool(options)
    assert f"CPU kernels: stock; {why}" in done.stdout
    assert said[-1].startswith(f"duo: duo's CPU kernels cannot be used: {why}")


def test_the_release_is_read_beside_the_libraries(tmp_path: Path) -> None:
    package = tmp_path / "llama_cpp"
    package.mkdir()
    assert release_of(package / "lib") == ""
    for text, release in (
        ('from .llama import *\n\n__version__ = "0.3.36"\n', "0.3.36"),
        ("__version__ = '1.2.3.dev1'", "1.2.3.dev1"),
        ("version = '1'\n# __version__ = '2'\n", ""),
        ("", ""),
    ):
        (package / "__init__.py").write_text(text)
        assert release_of(package / "lib") == release
    (package / "__init__.py").write_bytes(b'\xff\n__version__ = "0.3.36"\n')
    assert release_of(package / "lib") == "0.3.36"


# What the library says of its commit, llama_cpp's __init__.py, and the release that CMake finds (None: it stops).
SAID: list[tuple[str, str | None, str | None]] = [
    ("0c1e570-dirty", '__version__ = "0.3.36"', "0.3.36"),
    ("unknown", 'from .llama import *\n\n__version__ = "0.3.36"\n', "0.3.36"),
    ("unknown", "__version__ = '1.2'", "1.2"),
    ("0c1e57098", "", ""),
    ("0c1e570", None, ""),
    ("unknown", "", None),
    ("unknown", None, None),
    ("", "version = 1", None),
]


@pytest.mark.skipif(CMAKE is None or not BUILD_CMAKE.is_file(), reason="no CMake, or no sources")
@pytest.mark.parametrize(("commit", "init", "release"), mostly_daily(SAID, [SAID[1], SAID[4], SAID[6]]))
def test_cmake_requires_a_build_that_can_be_identified(
    commit: str, init: str | None, release: str | None, tmp_path: Path
) -> None:
    assert CMAKE is not None
    site = tmp_path / "a folder"
    (site / "llama_cpp").mkdir(parents=True)
    if init is not None:
        (site / "llama_cpp" / "__init__.py").write_text(init)
    script = tmp_path / "try.cmake"
    script.write_text(
        f'set(GGML_BUILD_COMMIT "{commit}")\ninclude({BUILD_CMAKE})\nduo_llama_build("{site}")\n'
        'message(STATUS "release:${DUO_LLAMA_RELEASE}:")\n'
    )
    done = subprocess.run([CMAKE, "-P", str(script)], capture_output=True, text=True, timeout=HANG_S, check=False)
    if release is None:
        assert done.returncode != 0
        assert "says neither its commit (it was built without git)" in " ".join(done.stderr.split())
    else:
        assert done.returncode == 0, done.stderr
        assert f"release:{release}:" in done.stdout
