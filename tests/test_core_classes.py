"""One job for a class: its size tells."""

import re
from collections.abc import Iterator
from pathlib import Path

CORE = Path(__file__).parents[1] / "csrc"
N_FUNCTIONS, N_MEMBERS = 25, 20

VECTORS = {"neon", "half", "raw", "twice"}  # vector types of csrc/cpu: a function for each instruction
TABLES = {"model_options", "sampling_params", "verify_stats"}  # what users may set, and what they are told
HEAD = re.compile(r"(?<!enum )\b(?:class|struct)\s+(?:alignas\([^)]*\)\s*)?(\w+)(?:\s+final)?\s*(?::[^{;()]*)?\{")
OTHERS = re.compile(r"(using|friend|static_assert|typedef|enum|class|struct|template\s*<[^>]*>\s*(class|struct))\b")


def code(path: Path) -> str:
    """Without comments, literals and lines of the preprocessor."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", path.read_text("utf-8"), flags=re.S)
    return re.sub(r"^\s*#.*$", "", re.sub(r'"(\\.|[^"\\])*"|\'(\\.|[^\'\\])*\'', "0", text), flags=re.M)


def body(text: str, begin: int) -> str:
    """Of the class whose brace is before `begin`, without the bodies of its functions."""
    depth, found = 1, ""
    for c in text[begin:]:
        depth += (c == "{") - (c == "}")
        if not depth:
            break
        found += c if depth == 1 or (depth == 2 and c == "{") else ""
    return found


def without_arguments(words: str) -> str:
    """Without what templates, functions and initializers are given, whose commas separate no members."""
    while (less := re.sub(r"<[^<>]*>|\([^()]*\)|\{[^{}]*\}?", "", words)) != words:
        words = less
    return words


def sizes(text: str) -> Iterator[tuple[str, int, int]]:
    """Name, functions and members of each class."""
    for head in HEAD.finditer(text):
        n_functions = n_members = 0
        for part in re.split(r";|\{\}", body(text, head.end())):
            words = re.sub(r"\b(public|private|protected)\s*:", "", part).strip()
            if not words or OTHERS.match(words) or re.search(r"= (delete|default)$", words):
                continue
            is_function = re.match(r"[^=]*\(", words) is not None
            n_functions += is_function
            if not is_function and " " in words and "constexpr" not in words:
                n_members += 1 + without_arguments(words).count(",")
        yield head[1], n_functions, n_members


def test_sizes_are_counted() -> None:
    text = """class a : public b { public: a() = default; explicit a(int i) : i_(i) {} void g();
        int f() const { return i_; }
        struct inner { int x, y, z; }; using t = int; static constexpr int n = 3;
        private: int i_ = f(1), j_; std::map<int, std::pair<int, int>> v_{}; };"""
    assert list(sizes(text)) == [("a", 3, 3), ("inner", 0, 3)]


def test_no_class_is_large() -> None:
    large = []
    for path in sorted(CORE.rglob("*.h")) + sorted(CORE.rglob("*.cpp")):
        if path.parent.name == "python":
            continue
        for name, n_functions, n_members in sizes(code(path)):
            if n_functions > N_FUNCTIONS and name not in VECTORS:
                large.append(f"{path.relative_to(CORE)}: {name} has {n_functions} functions")
            if n_members > N_MEMBERS and name not in TABLES:
                large.append(f"{path.relative_to(CORE)}: {name} has {n_members} members")
    assert not large
