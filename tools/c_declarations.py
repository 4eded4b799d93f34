"""What a C header declares, as normalised text: enough to see whether a declaration is another one in another release.

Standard library only. Not a compiler: conditions of the preprocessor are not evaluated, all branches count.
"""

from __future__ import annotations

import re
from functools import cache

# Says who exports or warns, not what is declared.
NOISE = re.compile(r"\b(?:LLAMA_API|GGML_API|GGML_BACKEND_API|GGML_NORETURN|extern \"C\"|static inline)\b")
MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+(\S.*?)[ \t]*$", re.MULTILINE)
FUNCTION = re.compile(r"([\w][\w \t\n*]*?[ *\n])(\w+)\s*\(([^;{}]*)\)\s*;")
ENUM = re.compile(r"\benum(?:\s+\w+)?\s*\{([^{}]*)\}")
TYPEDEF = re.compile(r"\btypedef\s+([^;{}]*?)(?:\(\s*\*\s*(\w+)\s*\)\s*\(([^;{}]*)\)|\b(\w+))\s*;")
POINTER = re.compile(r"^(.*?)\(\s*\*\s*(\w+)\s*\)\s*\((.*)\)$", re.DOTALL)


def without_comments(text: str) -> str:
    return re.sub(r"//[^\n]*|/\*.*?\*/", " ", text.replace("\\\n", " "), flags=re.DOTALL)


def plain(text: str) -> str:
    """One space between words, none beside signs."""
    return re.sub(r"\s*([^\w\s])\s*", r"\1", " ".join(text.split())).strip()


def _inside(text: str, start: int) -> str:
    """What stands between the brace at `start` and its partner."""
    depth = 0
    for i in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[i], 0)
        if depth == 0:
            return text[start + 1 : i]
    return ""


def bodies(text: str) -> dict[str, str]:
    """Name and body of each struct that has one. `text`: without comments."""
    found = {}
    for m in re.finditer(r"\bstruct\s+(\w+)\s*\{", text):
        found[m[1]] = _inside(text, m.end() - 1)
    return found


@cache  # two releases may have the same ones
def declarations(headers: tuple[str, ...]) -> dict[str, str]:
    """Of each function, struct, type, macro and constant of an enumeration: its declaration, or its value."""
    found: dict[str, str] = {}
    for header in headers:
        text = NOISE.sub(" ", without_comments(header))
        found.update({m[1]: plain(m[2]) for m in MACRO.finditer(text)})
        text = re.sub(r"^[ \t]*#.*$", "", text, flags=re.MULTILINE)
        text = re.sub(r"\bDEPRECATED\s*\(((?:[^()]|\([^()]*\))*?),\s*\"[^;]*\"\s*\)", r"\1", text)
        found.update({name: plain(body) for name, body in bodies(text).items()})
        for m in TYPEDEF.finditer(text):
            found.setdefault(m[2] or m[4], plain(f"{m[1]}({m[3] or ''})"))
        for m in ENUM.finditer(text):
            found.update(_constants(m[1]))
        found.update({m[2]: plain(f"{m[1]}({m[3]})") for m in FUNCTION.finditer(text)})
    return found


def _constants(body: str) -> dict[str, str]:
    """Values as text: a number, or the expression and how many places behind it."""
    found, base, offset = {}, "", 0
    for entry in filter(None, map(str.strip, body.split(","))):
        name, _, value = map(str.strip, entry.partition("="))
        base, offset = (plain(value), 0) if value else (base, offset + bool(found))
        number = int(base, 0) + offset if re.fullmatch(r"-?(?:0x[0-9a-fA-F]+|\d+)", base or "0") and base else None
        found[name] = str(number) if number is not None else f"{base}+{offset}"
    return found


def members(body: str, structs: dict[str, str]) -> list[tuple[str, int | None]]:
    """Name of each member in its order, and for a pointer to a function its number of arguments. A member whose type is
    one of `structs` is replaced by the members of that one. `body`: without comments."""
    found: list[tuple[str, int | None]] = []
    for declaration in filter(None, map(str.strip, body.split(";"))):
        if pointer := POINTER.match(declaration):
            arguments = pointer[3].strip()
            found.append((pointer[2], 0 if arguments in ("", "void") else arguments.count(",") + 1))
            continue
        first, *more = re.sub(r"\[[^\]]*\]", "", declaration).split(",")
        kind, name = re.findall(r"\w+", first)[-2:]
        if kind in structs:
            found += members(structs[kind], structs)
        else:
            found += [(n.strip(" *\n"), None) for n in (name, *more)]
    return found
