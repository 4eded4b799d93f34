"""What is distributed: names and versions that stand in one place, the sdist, a wheel in an environment of its own."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import pytest

import duo
from duo import build_advice
from duo.models.demo import demo_pair
from duo.server.page_files import KINDS

ROOT = Path(__file__).parents[1]
PROJECT = ROOT / "pyproject.toml"
BUILD_S = 1500

pytestmark = [pytest.mark.full, pytest.mark.skipif(not PROJECT.is_file(), reason="no sources")]
needs_backend = pytest.mark.skipif(find_spec("scikit_build_core") is None, reason="scikit-build-core is not installed")


def test_llama_cpp_has_one_release() -> None:
    """pyproject.toml must name it twice; test_build.py compares what make installs."""
    project = PROJECT.read_text("utf-8")
    named = re.findall(r'"(llama-cpp-python\S*)"', project)
    assert len(named) == 2 and len(set(named)) == 1
    release = named[0].partition("==")[2]
    layouts = (ROOT / "csrc" / "cpu" / "ggml_interface.h").read_text("utf-8")
    assert re.search(rf'duo_llama_release\s*= "{re.escape(release)}"', layouts)
    assert build_advice.package() == named[0]
    code = "import runpy, sys; print(runpy.run_path(sys.argv[1])['package']())"
    source = next((ROOT / "src" / "duo").rglob("build_advice.py"))
    done = subprocess.run([sys.executable, "-c", code, source], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == named[0]
    for file in ("README.md", "Makefile", "CONTRIBUTING.md", "csrc/llama.cmake", "csrc/llama_build.cmake"):
        assert release not in (ROOT / file).read_text("utf-8"), f"{file} says it again"


def test_duo_has_one_version() -> None:
    assert metadata.version(build_advice.DISTRIBUTION) == duo.__version__
    assert not re.search(r"^version\s*=", PROJECT.read_text("utf-8"), re.MULTILINE)


def test_an_extra_that_contains_others_needs_what_they_need(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    from extra_requirements import requirements_of  # type: ignore[import-not-found]

    declared = [
        "numpy", 'fastapi>=1; extra == "server"', 'grpcio; python_version > "3" and extra == "remote"',
        'duo-llama[remote,server]; extra == "test"', 'pytest>=8 ; extra == "test"', 'grpcio; extra == "test"',
    ]  # fmt: skip
    assert requirements_of("test", declared) == ["grpcio", "fastapi>=1", "pytest>=8"]
    assert requirements_of("server", declared) == ["fastapi>=1"]
    assert requirements_of("tests", declared) == []
    lines = PROJECT.read_text("utf-8").partition("[project.optional-dependencies]")[2].partition("\n[")[0]
    named = re.findall(r'"([\w-]+)[^"]*"', lines)
    assert len(named) == len(set(named)), "an extra repeats what another one has"


def test_what_is_imported_is_declared() -> None:
    """A package that only comes with another one may leave it."""
    named = re.findall(r'"([A-Za-z][\w.-]*)', PROJECT.read_text("utf-8"))
    declared = {re.sub(r"[-_.]+", "-", name).lower() for name in named}
    imports, found = re.compile(r"(?m)^\s*(?:from|import) (\w+)"), set()
    for file in Path(duo.__file__).parent.rglob("*.py"):
        found |= set(imports.findall(file.read_text("utf-8")))
    homes = metadata.packages_distributions()  # of what is installed: PyTorch need not be
    for name in sorted(found - set(sys.stdlib_module_names) - {"duo"}):
        own = {re.sub(r"[-_.]+", "-", home).lower() for home in homes.get(name, ())}
        assert not own or own & declared, f"{name} is not in pyproject.toml"


def test_nobody_is_told_to_install_another_duo() -> None:
    """The "duo" on the package index is another project."""
    assert f'name = "{build_advice.DISTRIBUTION}"' in PROJECT.read_text("utf-8")
    files = [*(ROOT / "src").rglob("*.py"), *(ROOT / "docs").glob("*.md"), *ROOT.glob("*.md"), ROOT / "Makefile"]
    wrong = re.compile(r"\bduo\[|pip install (?:-U )?['\"]?duo(?![\w-])")
    assert [f.name for f in files if wrong.search(f.read_text("utf-8"))] == []


def tracked() -> set[str]:
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a checkout")
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    return {f for f in done.stdout.splitlines() if not f.startswith(".") and (ROOT / f).is_file()}


@pytest.mark.daily
@needs_backend
def test_the_sdist_is_complete(tmp_path: Path) -> None:
    """Of a copy: a checkout that was built in has 50,000 other files, and the backend looks at each of them."""
    code = "import sys\nfrom scikit_build_core.build import build_sdist\nbuild_sdist(sys.argv[1])"
    files, checkout = tracked(), tmp_path / "checkout"
    for name in (*files, ".gitignore"):
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, checkout / name)
    for name in (".ci/run", "build/test/CMakeCache.txt", ".venv/bin/duo", "src/duo/__pycache__/errors.pyc"):
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).touch()
    subprocess.run([sys.executable, "-c", code, tmp_path], cwd=checkout, capture_output=True, check=True)
    path = tmp_path / f"duo_llama-{duo.__version__}.tar.gz"
    with tarfile.open(path) as sdist:
        inside = {name.partition("/")[2] for name in sdist.getnames()}
    assert files - inside == set()
    assert not any(name.startswith((".ci", "build/", ".venv")) or "__pycache__" in name for name in inside)


def environment_with(wheel: Path, folder: Path, without: str = "nothing") -> Path:
    """Python of a new environment that has the wheel, and links to what else is installed here, but for `without`."""
    venv.create(folder, symlinks=True)
    python = folder / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    site = next(folder.rglob("site-packages"))
    for entry in Path(metadata.distribution("llama-cpp-python").locate_file("")).iterdir():
        if not re.match(rf"_*duo|__editable__|__pycache__|{without}", entry.name):
            (site / entry.name).symlink_to(entry)
    install = [
        "-m",
        "pip",
        "--disable-pip-version-check",
        "--python",
        str(python),
        "install",
        "--no-deps",
        "--no-index",
    ]
    subprocess.run([sys.executable, *install, str(wheel)], capture_output=True, check=True)
    return python


@pytest.mark.slow
@pytest.mark.daily  # tests/test_wheel*.py look at what is given to others
@needs_backend
@pytest.mark.timeout(BUILD_S + 300)
def test_a_wheel_works_without_the_build_tree(tmp_path: Path) -> None:
    """Made from the folder that make has built in, so that nothing is compiled twice."""
    options = ["--disable-pip-version-check", "--no-build-isolation", "--no-deps", "--no-index", "-w", str(tmp_path)]
    make = [sys.executable, "-m", "pip", "wheel", *options, str(ROOT)]
    made = subprocess.run(make, capture_output=True, text=True, timeout=BUILD_S, check=False)
    assert made.returncode == 0, made.stdout[-3000:] + made.stderr[-3000:]
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.startswith(f"duo_llama-{duo.__version__}-")
    python = environment_with(wheel, tmp_path / "environment")
    package = next((tmp_path / "environment").rglob("site-packages")) / "duo"
    assert {"py.typed", "models.yaml", "_core.pyi"} <= {f.name for f in package.iterdir()}
    assert {f.name for f in (package / "server" / "ui").iterdir()} == KINDS.keys()
    assert not any(str(ROOT / "build").encode() in f.read_bytes() for f in package.glob("_core*.so"))
    outside = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "LD_", "DYLD_", "VIRTUAL_ENV"))}
    program = [
        str(python.parent / "duo"),
        "-m",
        str(demo_pair()[0]),
        "-p",
        "Once upon a time",
        "-n",
        "8",
        "--temp",
        "0",
    ]
    done = subprocess.run(program, cwd=tmp_path, env=outside, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    with duo.Duo(demo_pair()[0]) as d:
        assert d.generate("Once upon a time", max_tokens=8, temperature=0).text in done.stdout
    code = "import duo, sys; print(duo.__version__, duo.__file__, any(p.startswith(sys.argv[1]) for p in sys.path))"
    said = subprocess.run(
        [python, "-c", code, str(ROOT / "src")], cwd=tmp_path, env=outside, capture_output=True, text=True, check=True
    )
    assert said.stdout.split() == [duo.__version__, str(package / "__init__.py"), "False"]
