"""What would another llama-cpp-python change for duo? Compares what duo copies, calls and reads of it.

    python tools/upgrade_llama.py OTHER                  with the installed one
    python tools/upgrade_llama.py OTHER --from SDIST     with one that is unpacked: then sources are compared as well

OTHER and SDIST are folders: an unpacked sdist (pip download --no-binary :all: --no-deps llama-cpp-python==X), or one
that llama-cpp-python was installed to (pip install --target). Exit code 0: nothing changed; 1: something changed, or
could not be compared; 2: a folder has no llama.cpp.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from c_declarations import bodies, declarations, members, without_comments
from llama_tree import LlamaTree

ROOT = Path(__file__).resolve().parents[1]
ARGS = ROOT / "tests" / "llama_cpp_args.json"  # tools/llama_args.py
LAYOUTS = ROOT / "csrc" / "cpu" / "ggml_interface.h"
COPIED = "ggml-backend-impl.h"  # what the layouts are copied from; never installed

# What duo looks for in llama.cpp's log, or in its message before an abort: as llama.cpp writes it, and as duo does.
LOG_LINES = {
    "error loading model: ": "error loading model: ",
    "failed to load model": "failed to load model",
    "ggml-rpc.cpp": "ggml-rpc.cpp:",
}
CMAKE_NAMES = ("GGML_BUILD_COMMIT", "GGML_VERSION", "GGML_AVAILABLE_BACKENDS")


class Row(NamedTuple):
    what: str
    name: str
    change: str  # empty: none


@cache
def duo_files(*kinds: str) -> dict[Path, str]:
    folders = (ROOT / "csrc", ROOT / "src" / "duo")
    return {
        f: f.read_text("utf-8") for d in folders for k in kinds for f in sorted(d.rglob(k)) if "wire_pb2" not in f.name
    }


def layouts(there: LlamaTree, same_commit: bool) -> Iterator[Row]:
    """Structures that csrc/cpu/ggml_interface.h declares in its own words, member by member."""
    text = without_comments(LAYOUTS.read_text("utf-8"))
    ours = bodies(text)
    path = None if there.sources is None else there.sources / "ggml" / "src" / COPIED
    if path is None or not path.is_file():
        if not same_commit:
            yield Row("layout", COPIED, "is not there; name the unpacked sdist")
        return
    source = without_comments(path.read_text("utf-8"))
    theirs = bodies(source)
    for name, body in ours.items():
        mine, other = members(body, ours), members(theirs.get(name, ""), theirs)
        yield Row("layout", name, "" if name in theirs else "is gone")
        for i in range(max(len(mine), len(other)) if name in theirs else 0):
            a, b = (m[i] if i < len(m) else ("nothing", None) for m in (mine, other))
            # Members that duo never uses are declared without their arguments.
            if a[0] != b[0] or (a[1] is not None and a[1] != b[1]):
                yield Row("layout", f"{name}, member {i + 1}", f"{_member(a)} is {_member(b)} now")
                break
    mine, other = declarations((text,)), declarations((source,))
    for name in sorted(n for n, d in mine.items() if d.endswith(")") and f"{n}(" in source.replace(" (", "(")):
        counts = [d.count(",") for d in (mine[name], other.get(name, ""))]
        yield Row("layout", f"{name}()", "" if counts[0] == counts[1] else "takes other arguments")
    api = re.search(r"define\s+GGML_BACKEND_API_VERSION\s+(\d+)", source)
    mine_api = re.search(r"duo_ggml_api_version\s*=\s*(\d+)", text)
    versions = [m[1] if m else "none" for m in (mine_api, api)]
    yield Row("layout", "GGML_BACKEND_API_VERSION", "" if versions[0] == versions[1] else " -> ".join(versions))


def _member(m: tuple[str, int | None]) -> str:
    return m[0] if m[1] is None else f"{m[0]}() of {m[1]}"


@cache
def _found(pattern: str, code: str) -> list[str]:
    return sorted(set(re.findall(pattern, code)))


@cache
def _cpp_code() -> str:
    return "\n".join(map(without_comments, duo_files("*.cpp", "*.h").values()))


def interface(here: LlamaTree, there: LlamaTree) -> Iterator[Row]:
    """Functions, structures, constants and macros of llama.cpp's headers that the C++ code names."""
    old, new = (declarations(tuple(h.read_text("utf-8") for h in t.headers)) for t in (here, there))
    for name in _found(r"\b(?:llama|ggml|gguf|LLAMA|GGML|GGUF)_\w+", _cpp_code()):
        if name not in old:
            continue
        if name not in new:
            yield Row("interface", name, "is gone")
        else:
            yield Row("interface", name, "" if old[name] == new[name] else _difference(old[name], new[name]))


def _difference(old: str, new: str, n_shown: int = 60) -> str:
    """Where two texts begin to differ."""
    i = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    i = max(0, i - 20)
    return f"{old[i : i + n_shown]!r} -> {new[i : i + n_shown]!r}"


def arguments(here: LlamaTree, there: LlamaTree) -> Iterator[Row]:
    """Public methods of llama_cpp.Llama, whose place duo.Duo takes: their arguments."""
    old, new = here.python("llama.py"), there.python("llama.py")
    if not new:
        yield Row("llama_cpp.Llama", "llama.py", "is not there; name a llama-cpp-python, not llama.cpp alone")
        return
    for name in sorted(old | new):
        if not re.fullmatch(r"Llama\.(__init__|__call__|[a-z]\w*)", name) or "def " not in (old.get(name) or new[name]):
            continue
        a, b = (_signature(x.get(name, "")) for x in (old, new))
        yield Row(
            "llama_cpp.Llama", name, "" if a == b else "is new" if not a else "is gone" if not b else _difference(a, b)
        )


def _signature(function: str) -> str:
    return ast.unparse(ast.parse(function).body[0].args) if function else ""  # type: ignore[attr-defined]


def texts(here: LlamaTree, there: LlamaTree) -> Iterator[Row]:
    """Texts that duo shares with llama.cpp: log lines, names asked for at run time, options, keys of files."""
    files = duo_files("*.cpp", "*.h", "*.py")
    code = "\n".join(files.values())
    for theirs, ours in LOG_LINES.items():
        if ours not in code:
            raise SystemExit(f"duo no longer reads {ours!r}; correct LOG_LINES in {Path(__file__).name}")
        yield Row("log line", repr(theirs), "" if theirs.encode() in there.texts else "is gone")
    for kind, pattern in (
        ("name", r'"(ggml_backend_\w+)"'),
        ("environment variable", r'"(GGML_[A-Z_]+)"'),
        ("key of a file", r'"((?:general|tokenizer|split)\.[\w.]+|\.(?!png\b|gguf\b)[a-z_]+(?:\.[a-z_]+)*)"'),
    ):
        for text in _found(pattern, code):
            if text.encode() in here.texts:
                yield Row(kind, text, "" if text.encode() in there.texts else "is gone")
    # The options are in the code of llama.cpp's programs, which `make` does not build.
    if there.sources is not None and (there.sources / "common").is_dir():
        known = {name for arg in json.loads(ARGS.read_text("utf-8")) for name in arg["names"]}
        for text in _found(r'"(--[a-z][a-z-]+)[" ,]', code):
            if text in known:
                yield Row("option", text, "" if text.encode() in there.texts else "is gone")


def build(here: LlamaTree, there: LlamaTree) -> Iterator[Row]:
    """What CMake is told, and asks."""
    if there.sources is not None:
        options = (there.sources / "ggml" / "CMakeLists.txt").read_text("utf-8")
        check = (ROOT / "tools" / "check_llama.py").read_text("utf-8")
        backends = re.search(r"^BACKENDS = \((.*)\)$", check, re.MULTILINE)
        for name in re.findall(r"\w+", backends[1]) if backends else []:
            has = re.search(rf"option\(\s*GGML_{name}\b", options)
            yield Row("CMake option", f"GGML_{name}", "" if has else "is gone")
    configs = [t.folder.glob("lib*/cmake/ggml/ggml-config.cmake") for t in (here, there)]
    old, new = ("".join(c.read_text("utf-8") for c in found) for found in configs)
    for name in CMAKE_NAMES if old and new else ():
        yield Row("CMake variable", name, "" if name in new else "is gone")


def followed(here: LlamaTree, there: LlamaTree) -> Iterator[Row]:
    """llama.cpp's files that duo's comments name: what was read there may have changed."""
    named = _found(r"\b([a-z][\w/-]*\.(?:cpp|c))\b", "\n".join(duo_files("*.cpp", "*.h", "*.py").values()))
    if here.sources is None or there.sources is None:
        yield Row("source", "files that duo follows", "not compared; --from SDIST needs the sources of both")
        return
    for name in named:
        if old := here.source(name):
            new = there.source(name)
            yield Row("source", name, "" if new == old else "has changed" if new else "is gone")


def compare(here: LlamaTree, there: LlamaTree) -> list[Row]:
    same_commit = bool(here.commit) and here.commit == there.commit
    rows = [
        *layouts(there, same_commit),
        *interface(here, there),
        *arguments(here, there),
        *texts(here, there),
        *build(here, there),
    ]
    return rows if same_commit else [*rows, *followed(here, there)]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("other", type=Path, help="folder of the llama-cpp-python to compare with")
    parser.add_argument(
        "--from", dest="here", type=Path, help="folder of the one that duo is made for (default: installed)"
    )
    given = parser.parse_args()
    if given.here is None:
        spec = find_spec("llama_cpp")
        if spec is None or spec.origin is None:
            parser.error("llama-cpp-python is not installed here; name a folder with --from")
        given.here = Path(spec.origin).parents[1]
    try:
        here, there = LlamaTree(given.here), LlamaTree(given.other)
    except SystemExit as e:
        parser.error(str(e))
    rows = compare(here, there)
    print(f"llama-cpp-python {here.release or '?'} -> {there.release or '?'}\n")
    wide = max((len(r.name) for r in rows if r.change), default=0)
    for what in dict.fromkeys(r.what for r in rows):
        of_kind = [r for r in rows if r.what == what]
        changed = [r for r in of_kind if r.change]
        print(f"{what}: {len(of_kind) - len(changed)} the same, {len(changed)} to look at")
        for r in changed:
            print(f"    {r.name:{wide}}  {r.change}")
    return 1 if any(r.change for r in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
