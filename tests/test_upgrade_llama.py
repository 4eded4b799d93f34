"""tools/upgrade_llama.py, on copies of the installed llama-cpp-python in which something is another thing."""

import re
import shutil
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
INTERFACE = ROOT / "csrc" / "cpu" / "ggml_interface.h"

pytestmark = [pytest.mark.full, pytest.mark.daily, pytest.mark.skipif(not INTERFACE.is_file(), reason="no sources")]

Compare = Callable[..., tuple[int, str]]


@pytest.fixture
def compare(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], small: Path) -> Compare:
    """Exit code and table. It compares with what is installed, or what stands for it."""
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import upgrade_llama  # type: ignore[import-not-found]

    def run(*args: str | Path, real: bool = False) -> tuple[int, str]:
        here = [] if real or "--from" in args else ["--from", str(small)]
        monkeypatch.setattr(sys, "argv", ["upgrade_llama.py", *map(str, args), *here])
        code = upgrade_llama.main()
        return code, capsys.readouterr().out

    return run


def site() -> Path:
    spec = find_spec("llama_cpp")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parents[1]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What llama-cpp-python installs, with only the texts of its libraries, in which names are looked for often."""
    to = tmp_path_factory.mktemp("small")
    shutil.copytree(site() / "include", to / "include")
    shutil.copytree(site() / "llama_cpp", to / "llama_cpp", ignore=shutil.ignore_patterns("*.so.*", "__pycache__"))
    shutil.copytree(site() / "lib", to / "lib", ignore=shutil.ignore_patterns("*.so.*"))
    for library in (*(to / "lib").glob("lib*.*"), *(to / "llama_cpp" / "lib").glob("lib*.*")):
        library.write_bytes(b"\0".join(re.findall(rb"[\t\n\x20-\x7e]{4,}", library.read_bytes())))
    return to


@pytest.fixture
def installed(small: Path, tmp_path: Path) -> Path:
    """A copy to change, without sources."""
    return Path(shutil.copytree(small, tmp_path / "installed"))


@pytest.fixture
def sdist(installed: Path, tmp_path: Path) -> Path:
    """The same as an sdist: headers where its sources have them, and libraries for the texts of its sources."""
    to = tmp_path / "sdist"
    llama = to / "vendor" / "llama.cpp"
    shutil.copytree(installed / "include", llama / "include")
    shutil.copytree(installed / "llama_cpp", to / "llama_cpp", ignore=shutil.ignore_patterns("lib"))
    (llama / "src").mkdir()
    for file in (*(installed / "lib").glob("lib*"), *(installed / "llama_cpp" / "lib").glob("lib*")):
        if "common" not in file.name:  # its sources are below
            shutil.copy(file, llama / "src" / f"{file.name.partition('.')[0]}.cpp")
    source = llama / "ggml" / "src"
    source.mkdir(parents=True)
    (source / "ggml-backend-impl.h").write_text(
        "#define GGML_BACKEND_API_VERSION 2\n" + as_llama_writes(INTERFACE.read_text())
    )
    options = "".join(f"option(GGML_{b} x)\n" for b in ("RPC", "CUDA", "VULKAN", "METAL", "HIP", "SYCL"))
    (llama / "ggml" / "CMakeLists.txt").write_text(options)
    (llama / "common").mkdir()
    shutil.copy(ROOT / "tests" / "llama_cpp_args.json", llama / "common" / "arg.cpp")
    return to


def as_llama_writes(text: str) -> str:
    """Functions in a structure of their own inside the first one, as in ggml-backend-impl.h."""

    def is_function(member: str) -> bool:
        return "(*" in member or "duo_unused_fn" in member

    def nested(m: re.Match[str]) -> str:
        members = [x for x in m[2].split(";") if x.strip()]
        first = next(i for i, x in enumerate(members) if is_function(x))
        last = next(i for i in range(first, len(members)) if not is_function(members[i]))
        own, inside, rest = (";".join([*x, ""]) for x in (members[:first], members[first:last], members[last:]))
        return f"struct {m[1]}_i {{ {inside} }};\nstruct {m[1]} {{ {own} struct {m[1]}_i iface; {rest} }};"

    return re.sub(r"struct (ggml_backend_(?:buffer_type|device|reg)) \{(.*?)\n\};", nested, text, flags=re.DOTALL)


def change(path: Path, old: str, new: str) -> None:
    data = path.read_bytes()
    assert old.encode() in data
    path.write_bytes(data.replace(old.encode(), new.encode(), 1))


def lines(table: str) -> list[str]:
    return [line.strip() for line in table.splitlines() if line.startswith("    ")]


def test_equal_releases_show_no_changes(compare: Compare, installed: Path, sdist: Path) -> None:
    assert compare(installed, real=True) == (0, compare(site(), real=True)[1])
    code, table = compare(sdist, "--from", sdist)
    assert (code, lines(table)) == (0, [])
    same = {m[1]: int(m[2]) for m in re.finditer(r"^(.+): (\d+) the same, 0 to look at$", table, re.MULTILINE)}
    # That much is compared, not nothing.
    assert same["layout"] >= 8 and same["interface"] > 150 and same["llama_cpp.Llama"] > 20
    assert same["log line"] > 2 and same["option"] > 50 and same["key of a file"] > 15 and same["CMake option"] == 6


def test_options_are_looked_for_in_the_sources(compare: Compare, sdist: Path) -> None:
    arg = sdist / "vendor" / "llama.cpp" / "common" / "arg.cpp"
    arg.write_text(arg.read_text().replace("--temp", "--warmth"))
    code, table = compare(sdist)
    assert code == 1 and re.search(r"--temp +is gone", table)


def test_called_functions_are_compared(compare: Compare, installed: Path) -> None:
    llama, ggml = installed / "include" / "llama.h", installed / "include" / "ggml.h"
    change(llama, "int32_t n_gpu_layers;", "int64_t n_gpu_layers;")
    change(llama, "llama_model_load_from_file(", "llama_model_load_from_disk(")
    text = ggml.read_text()
    ggml.write_text(re.sub(r"(GGML_OP_MUL_MAT\b)", r"GGML_OP_NEW, \1", text, count=1))
    code, table = compare(installed)
    found = lines(table)
    assert code == 1
    assert any(re.match(r"llama_model_params .*int32_t.*->.*int64_t", line) for line in found)
    assert any(re.match(r"llama_model_load_from_file +is gone", line) for line in found)
    assert any(re.match(r"GGML_OP_MUL_MAT +'\d+' -> '\d+'", line) for line in found)


def test_comments_and_spaces_are_no_change(compare: Compare, installed: Path) -> None:
    change(installed / "include" / "llama.h", "int32_t n_gpu_layers;", "int32_t   n_gpu_layers  ; // how many; or all")
    assert compare(installed)[0] == 0


def test_the_arguments_are_compared(compare: Compare, installed: Path) -> None:
    change(installed / "llama_cpp" / "llama.py", "n_gpu_layers: int", "n_layers: int")
    code, table = compare(installed)
    assert code == 1
    assert re.search(r"Llama\.__init__ .*n_gpu_layers.*->.*n_layers", table)


def test_texts_are_looked_for_in_the_libraries(compare: Compare, installed: Path) -> None:
    (library,) = (installed / "llama_cpp" / "lib").glob("libllama.*")
    for text in ("error loading model: ", "tokenizer.ggml.tokens"):
        data = library.read_bytes()
        assert text.encode() in data
        library.write_bytes(data.replace(text.encode(), text.replace("o", "0").encode()))
    code, table = compare(installed)
    assert code == 1
    assert re.search(r"'error loading model: ' +is gone", table)
    assert re.search(r"tokenizer\.ggml\.tokens +is gone", table)


def test_another_commit_without_its_sources_is_not_called_the_same(compare: Compare, installed: Path) -> None:
    config = next(installed.glob("lib*/cmake/ggml/ggml-config.cmake"))
    config.write_text(re.sub(r"(GGML_BUILD_COMMIT \"?)\w+", r"\g<1>fffffff", config.read_text()))
    code, table = compare(installed)
    assert code == 1
    assert re.search(r"ggml-backend-impl\.h +is not there; name the unpacked sdist", table)
    assert re.search(r"files that duo follows +not compared", table)


LAYOUT_CHANGES = [
    ("ggml_backend_buffer_type_t buft;\n    void *                     context;",
     "void * context;\n    ggml_backend_buffer_type_t buft;",
     r"ggml_backend_buffer, member 12 +buft is context now"),
    ("(*supports_op)(ggml_backend_dev_t, ", "(*supports_op)(ggml_backend_dev_t, int, ",
     r"ggml_backend_device, member \d+ +supports_op\(\) of 2 is supports_op\(\) of 3 now"),
    ("event_record, event_wait", "event_record, event_none, event_wait",
     r"ggml_backend, member \d+ +event_wait is event_none now"),
    ("API_VERSION 2", "API_VERSION 3", r"GGML_BACKEND_API_VERSION +2 -> 3"),
    ("struct ggml_backend_reg {", "struct ggml_backend_registry {", r"ggml_backend_reg +is gone"),
    ("void * context, size_t size);", "void * context);", r"ggml_backend_buffer_init\(\) +takes other arguments"),
]  # fmt: skip


def test_layouts_are_compared_member_by_member(compare: Compare, sdist: Path) -> None:
    path = sdist / "vendor" / "llama.cpp" / "ggml" / "src" / "ggml-backend-impl.h"
    right = re.sub(r"[ ]{2,}context", " context", path.read_text())
    for old, new, said in LAYOUT_CHANGES:
        path.write_text(right)
        change(path, re.sub(r"[ ]{2,}context", " context", old), new)
        code, table = compare(sdist)
        assert code == 1
        assert re.search(said, table), table


def test_sources_that_duo_follows_are_compared(compare: Compare, sdist: Path, tmp_path: Path) -> None:
    followed = Path("vendor/llama.cpp/common/speculative.cpp")
    (sdist / followed).write_text("int a;\n")
    other = tmp_path / "other"
    shutil.copytree(sdist, other)
    assert compare(other, "--from", sdist)[0] == 0
    change(other / followed, "int a;", "int b;")
    code, table = compare(other, "--from", sdist)
    assert (code, lines(table)) == (1, ["common/speculative.cpp  has changed"])
    (other / followed).unlink()
    assert lines(compare(other, "--from", sdist)[1]) == ["common/speculative.cpp  is gone"]


def test_a_folder_without_llama_is_refused(
    compare: Compare, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as e:
        compare(tmp_path)
    assert e.value.code == 2
    assert f"{tmp_path} has no include/llama.h" in capsys.readouterr().err
