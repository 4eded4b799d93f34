"""The rooms of the C++ core: each includes only rooms before it, and no header includes itself by way of others."""

import re
from graphlib import TopologicalSorter
from pathlib import Path

CSRC = Path(__file__).parents[1] / "csrc"
CORE = re.search(r"set\(core_rooms ([a-z ]+)\)", (CSRC.parent / "CMakeLists.txt").read_text("utf-8"))
# Room: the rooms that it may include. The first ones are the core, in order.
MAY: dict[str, set[str]] = {}
for name in CORE[1].split() if CORE else ():
    MAY[name] = {*MAY}
MAY["cpu"] = {"base", "experts"}
MAY["llama"] = {"base", "experts", "cpu", "model", "text"}  # what a model needs to know
MAY["python"] = {*MAY}

FILES = [f for f in CSRC.rglob("*") if f.suffix in (".h", ".cpp")]


def includes(file: Path) -> list[Path]:
    """Files of duo, as the compiler finds them."""
    names = re.findall(r'^\s*#\s*include\s*["<]([^">]+)[">]', file.read_text("utf-8"), re.MULTILINE)
    found = [p for n in names for p in (file.parent / n, CSRC / n) if p.exists()]
    return [p.resolve() for p in found]


def test_each_file_is_in_a_room() -> None:
    assert {f.parent for f in FILES} == {CSRC / room for room in MAY}


def test_includes_run_downward_only() -> None:
    assert len(MAY) == 16
    upward = [
        f"{f.relative_to(CSRC)} includes {i.relative_to(CSRC)}"
        for f in FILES
        for i in includes(f)
        if i.parent != f.parent and i.parent.name not in MAY[f.parent.name]
    ]
    assert upward == []


# Passed on by pointer, and never looked into: a request carries them from the engine to the worker.
POINTERS_UP = {("base", "request"), ("text", "errand"), ("text", "pair_profile")}


def test_what_is_only_declared_is_not_above() -> None:
    """Declarations that a file does not define or include: `class x;`."""
    found: set[tuple[str, str]] = set()
    homes = {
        name: f.parent.name
        for f in FILES
        for name in re.findall(
            r"^(?:class|struct) (\w+)(?: final)?(?: : [^;{]*)? \{", f.read_text("utf-8"), re.MULTILINE
        )
    }
    for f in FILES:
        for name in re.findall(r"^(?:class|struct) (\w+);", f.read_text("utf-8"), re.MULTILINE):
            home = homes.get(name, f.parent.name)
            if home != f.parent.name and home not in MAY[f.parent.name]:
                found.add((f.parent.name, name))
    assert found == POINTERS_UP


def test_no_header_includes_itself() -> None:
    TopologicalSorter({f: includes(f) for f in FILES}).prepare()


def own_names(file: Path) -> set[str]:
    """What is defined in anonymous namespaces, outside of functions."""
    found: set[str] = set()
    for block in re.findall(r"^namespace \{\n(.*?)^\}", file.read_text("utf-8"), re.MULTILINE | re.DOTALL):
        found |= set(re.findall(r"^(?:struct|class|enum class) (\w+)", block, re.MULTILINE))
        found |= set(
            re.findall(r"^(?!namespace|struct|class|enum)\w[^\n(={;]*?[ *&](\w+)\s*[(={;]", block, re.MULTILINE)
        )
    return found


def test_files_that_are_compiled_together_share_no_name() -> None:
    """Several files are one for the compiler (UNITY_BUILD), and others whenever a file is added."""
    with_llama = re.findall(r"csrc/cpu/(\w+)\.cpp", (CSRC.parent / "CMakeLists.txt").read_text("utf-8"))
    core = CORE[1].split() if CORE else []
    homes: dict[tuple[bool, str], list[str]] = {}
    for f in FILES:
        of_llama = f.parent.name == "llama" or (f.parent.name == "cpu" and f.stem in with_llama)
        if f.suffix == ".cpp" and (of_llama or f.parent.name in core):
            for name in own_names(f):
                homes.setdefault((of_llama, name), []).append(f.name)
    assert len(homes) > 300
    assert {name: files for (_, name), files in homes.items() if len(files) > 1} == {}
