"""A llama-cpp-python on the disk: the folder it was installed to, its unpacked sdist, or llama.cpp's sources alone."""

from __future__ import annotations

import ast
import hashlib
import re
from functools import cache, cached_property
from pathlib import Path

SOURCES = ("*.cpp", "*.c", "*.h")


class LlamaTree:
    def __init__(self, folder: Path) -> None:
        """Raises SystemExit if there is no llama.h in the folder."""
        self.folder = folder
        inside = folder / "vendor" / "llama.cpp"
        self.sources = next((f for f in (inside, folder) if (f / "ggml" / "src").is_dir()), None)
        includes = [folder / "include"] if self.sources is None else [
            self.sources / "include", self.sources / "ggml" / "include"
        ]  # fmt: skip
        self.headers = sorted(h for f in includes for h in f.glob("*.h"))
        if not any(h.name == "llama.h" for h in self.headers):
            raise SystemExit(
                f"{folder} has no include/llama.h; "
                "name a folder that llama-cpp-python was installed to, or its unpacked sdist"
            )
        self.package = folder / "llama_cpp"

    @cached_property
    def release(self) -> str:
        """Of llama-cpp-python; empty: there is only llama.cpp."""
        return self._found(self.package / "__init__.py", r"""^__version__ = ["']([^"']*)["']""")

    @cached_property
    def commit(self) -> str:
        """Of llama.cpp, as ggml's CMake configuration says; empty: not known."""
        for config in self.folder.glob("lib*/cmake/ggml/ggml-config.cmake"):
            return self._found(config, r"set\(GGML_BUILD_COMMIT \"?(\w+)")
        return ""

    @staticmethod
    def _found(path: Path, pattern: str) -> str:
        match = re.search(pattern, path.read_text("utf-8"), re.MULTILINE) if path.is_file() else None
        return match[1] if match else ""

    def header(self, name: str) -> str:
        """A header's text; empty: there is none of that name."""
        path = next((h for h in self.headers if h.name == name), None)
        return "" if path is None else path.read_text("utf-8")

    @cached_property
    def texts(self) -> bytes:
        """All that llama.cpp could print, compare or be asked for by name: its sources, or its libraries."""
        if self.sources is not None:
            found = [f for part in ("src", "ggml/src", "common") for kind in SOURCES
                     for f in (self.sources / part).rglob(kind)]  # fmt: skip
        else:
            # One of a wheel's three copies (.so, .so.0, .so.0.5.0) in each of its two folders.
            libraries = {f.name.partition(".")[0]: f for folder in (self.folder / "lib", self.package / "lib")
                         for f in sorted(folder.glob("*"), reverse=True)
                         if re.search(r"\.(so|dylib|dll)\b", f.name)}  # fmt: skip
            found = list(libraries.values())
        # Names as well: messages of an abort begin with the file's.
        return b"\0".join(f.name.encode() + b"\0" + f.read_bytes() for f in sorted(found))

    def source(self, name: str) -> str:
        """A digest of the sources whose paths end so; empty: none."""
        if self.sources is None:
            return ""
        files = sorted(f for f in self.sources.rglob(Path(name).name) if f.as_posix().endswith("/" + name))
        return "".join(hashlib.sha256(f.read_bytes()).hexdigest() for f in files)

    def python(self, module: str) -> dict[str, str]:
        """Code of a module of llama_cpp, by name: top level and classes, without comments and docs. Empty: none."""
        path = self.package / module
        return _code_of(path.read_text("utf-8")) if path.is_file() else {}


@cache
def _code_of(module: str) -> dict[str, str]:
    found: dict[str, str] = {}

    def collect(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef):
                found[prefix + node.name] = ", ".join(map(ast.unparse, node.bases))
                collect(node.body, f"{prefix}{node.name}.")
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                if ast.get_docstring(node) is not None:
                    node.body = node.body[1:] or [ast.Pass()]
                found[prefix + node.name] = ast.unparse(node)
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                found.update({prefix + ast.unparse(t): ast.unparse(node) for t in targets})

    collect(ast.parse(module).body, "")
    return found
