"""The rooms of the package: each imports what stands below it, nothing in a circle, nobody uses another's fields."""

import ast
import re
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"
# From the top. What stands in no room is ground, but for the two ends.
ROOMS = (
    "__main__", "cli", "server", "make_draft", "benchmark", "train", "gguf_tools", "shortcuts", "model", "loaded_pair",
    "conversation", "compat", "remote", "generation", "placement", "models", "chat", "grammar", "options", "support",
    "errors", "_libs", "_openmp", "build_advice", "_core",
)  # fmt: skip
FILES = {
    ".".join(f.with_suffix("").relative_to(SOURCE).parts).removesuffix(".__init__"): f for f in SOURCE.rglob("*.py")
}
FILES.pop("duo.remote.wire.wire_pb2")  # generated


@cache
def tree_of(file: Path) -> ast.Module:
    return ast.parse(file.read_text("utf-8"))


@cache
def imports(module: str) -> list[str]:
    """Modules of duo that this one imports, anywhere in it."""
    found: list[str] = []
    for node in ast.walk(tree_of(FILES[module])):
        if isinstance(node, ast.Import):
            found += (a.name for a in node.names if a.name in FILES)
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "duo":
            for a in node.names:
                name = f"{node.module}.{a.name}"
                found.append(name if name in FILES or name == "duo._core" else node.module)
    return found


def for_types_only(module: str) -> set[str]:
    """Those of them that only a type checker sees."""
    tree = tree_of(FILES[module])
    blocks = (n for n in ast.walk(tree) if isinstance(n, ast.If) and getattr(n.test, "id", "") == "TYPE_CHECKING")
    return {n.module for b in blocks for n in b.body if isinstance(n, ast.ImportFrom) and n.module}


def room(module: str) -> int:
    return ROOMS.index(module.split(".")[1])


def test_imports_run_downward_only() -> None:
    assert {m.split(".")[1] for m in FILES if "." in m} <= set(ROOMS)
    upward = [
        f"{m} imports {i}"
        for m in FILES
        for i in imports(m)
        if "." in m and "." in i and room(i) < room(m) and i not in for_types_only(m)
    ]
    assert upward == []


def test_nothing_is_imported_in_a_circle() -> None:
    # A package's own __init__ may import its parts later.
    packages = {m for m, f in FILES.items() if f.name == "__init__.py"}
    TopologicalSorter({m: set(imports(m)) - packages - {m} for m in FILES if m not in packages}).prepare()


# Public, whatever the underscore says: namedtuple's, os's, ctypes's and cffi's names.
PUBLIC = {"_replace", "_asdict", "_fields", "_exit", "_core", "_getframe", "_make"}


def test_nobody_reaches_into_anothers_fields() -> None:
    found = [
        f"{file}, line {node.lineno}: {ast.unparse(node)}"
        for file in FILES.values()
        for node in ast.walk(tree_of(file))
        if isinstance(node, ast.Attribute)
        and re.match("_[a-z]", node.attr)
        and node.attr not in PUBLIC
        and ast.unparse(node.value) not in ("self", "cls", "super()")
    ]
    assert not found


def test_each_room_says_what_it_is_for() -> None:
    for module, file in FILES.items():
        if file.name == "__init__.py":
            assert ast.get_docstring(tree_of(file)), module
