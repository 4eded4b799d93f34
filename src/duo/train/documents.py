"""The data that a user gives: texts to read, and prompts and conversations to answer."""

from __future__ import annotations

import gzip
import hashlib
import json
import lzma
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from duo.errors import BadValueError

FORMS = '"...", {"text": ...}, {"prompt": ...}, {"turns": [...]} or {"messages": [...]}'


@dataclass(frozen=True)
class Document:
    """One of the data's texts. Messages become a prompt by the target's chat template."""

    text: str = ""
    messages: tuple[dict[str, Any], ...] = ()
    answered: bool = False  # the target writes what follows; otherwise it reads the text, or goes on with a part of it
    where: str = field(default="", compare=False)  # its place in the data, for messages


def read_documents(files: Sequence[Path]) -> list[Document]:
    """Documents of all files, without empty ones.

    A .json or .jsonl file has a list, or a line each, of texts, {"text"}, {"prompt"}, {"turns"} (the first counts) or
    {"messages"}; any other file is one text. All may be compressed (.xz, .gz). Raises BadValueError.
    """
    documents = [d for file in files for d in _of_file(file)]
    if not documents:
        raise BadValueError(f"the data has no text ({', '.join(map(str, files)) or 'no file'}); give files with --data")
    return documents


def data_hash(files: Sequence[Path]) -> str:
    """A hash of the files' contents. Raises BadValueError."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(hashlib.sha256(_bytes(file)).digest())
    return digest.hexdigest()[:32]


def _bytes(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as e:
        raise BadValueError(f"the data file {file} cannot be read ({e.strerror}); check the path") from None


def _of_file(file: Path) -> Iterator[Document]:
    raw, name = _bytes(file), file.name
    try:
        if name.endswith(".xz"):
            raw, name = lzma.decompress(raw), name.removesuffix(".xz")
        elif name.endswith(".gz"):
            raw, name = gzip.decompress(raw), name.removesuffix(".gz")
        text = raw.decode("utf-8-sig")
    except (lzma.LZMAError, zlib.error, OSError, EOFError, UnicodeDecodeError) as e:
        raise BadValueError(f"the data file {file} is damaged or not UTF-8 ({e}); convert it") from None
    if name.endswith(".jsonl"):
        for n, line in enumerate(text.split("\n"), 1):
            if line.strip():
                yield from _of_value(_parsed(line, f"line {n} of {file}"), f"line {n} of {file}")
    elif name.endswith(".json"):
        values = _parsed(text, str(file))
        if not isinstance(values, list):
            raise BadValueError(f"{file} is not a list; write [{FORMS}]")
        for n, value in enumerate(values, 1):
            yield from _of_value(value, f"item {n} of {file}")
    elif text.strip():
        yield Document(text)


def _parsed(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as e:
        raise BadValueError(f"{where} is not JSON ({getattr(e, 'msg', e)}); write {FORMS}") from None


def _of_value(value: Any, where: str) -> Iterator[Document]:
    kind, content = ("text", value) if isinstance(value, str) else ("", None)
    if isinstance(value, dict):
        kind = next((k for k in ("text", "prompt", "turns", "messages") if k in value), "")
        content = value.get(kind)
    if kind == "messages" and isinstance(content, list) and content and all(isinstance(m, dict) for m in content):
        # An answer of somebody else's at the end is the target's to write.
        question = content[:-1] if content[-1].get("role") == "assistant" else content
        if question:
            yield Document(messages=tuple(question), answered=True, where=where)
        return
    if kind == "turns" and isinstance(content, list) and content and isinstance(content[0], str):
        yield Document(messages=({"role": "user", "content": content[0]},), answered=True)
        return
    if kind not in ("text", "prompt") or not isinstance(content, str):
        raise BadValueError(f"{where} is no text; write {FORMS}")
    if content.strip():
        yield Document(content, answered=kind == "prompt")
